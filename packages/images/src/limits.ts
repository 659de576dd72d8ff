/**
 * Upper bounds on everything that an image can ask of us. The store, the registry client, the tar reader and the
 * build share one object; a caller of `openImageStore` may override any of them.
 */

/** Bounds on untrusted input. All sizes are bytes. */
export interface ImageLimits {
  /** A manifest, an index or a config. */
  maxManifestBytes: number;
  /** Levels of index inside index. */
  maxIndexDepth: number;
  maxLayers: number;
  /** One blob as it is transferred, and one archive that is imported. */
  maxBlobBytes: number;
  /** One layer after decompression. */
  maxLayerBytes: number;
  /** The files of the merged image, with holes filled. */
  maxImageBytes: number;
  /** Tar entries of all layers together. */
  maxEntries: number;
  /** One PAX header, or one GNU long name. */
  maxTarHeaderBytes: number;
  /** Data segments of one sparse file. */
  maxSparseSegments: number;
}

/** What is used where the caller sets nothing. */
export const DEFAULT_LIMITS: ImageLimits = {
  maxManifestBytes: 4 << 20,
  maxIndexDepth: 4,
  maxLayers: 500,
  maxBlobBytes: 64 * 2 ** 30,
  maxLayerBytes: 64 * 2 ** 30,
  maxImageBytes: 128 * 2 ** 30,
  maxEntries: 5_000_000,
  maxTarHeaderBytes: 1 << 20,
  maxSparseSegments: 1 << 20,
};
