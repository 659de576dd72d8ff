/** Handlers of `/images…`. */
import type { AppContext } from '../../app/context.js';
import {
  getImageBuild,
  importLocalImage,
  inspectLocalImage,
  listImages,
  listLocalImages,
  pruneLocalImages,
  pullLocalImage,
  removeLocalImage,
} from '../../app/images.js';
import type { Handlers } from '../handlers.js';

type ImageOperations =
  | 'listImages'
  | 'getImageBuild'
  | 'listLocalImages'
  | 'inspectLocalImage'
  | 'pullLocalImage'
  | 'importLocalImage'
  | 'pruneLocalImages'
  | 'removeLocalImage';

/** The handlers. */
export function imageHandlers(app: AppContext): Handlers<ImageOperations> {
  return {
    listImages: ({ query }) => listImages(app, query),
    getImageBuild: ({ params }) => getImageBuild(app, params['build_id'] ?? ''),
    listLocalImages: async () => ({ images: await listLocalImages(app) }),
    inspectLocalImage: ({ params }) => inspectLocalImage(app, params['reference'] ?? ''),
    pullLocalImage: ({ body, signal }) => pullLocalImage(app, body, signal),
    importLocalImage: ({ query, stream, headers, signal }) =>
      importLocalImage(app, query.name, stream, headers['content-length'], signal),
    pruneLocalImages: () => pruneLocalImages(app),
    removeLocalImage: ({ params }) => removeLocalImage(app, params['reference'] ?? ''),
  };
}
