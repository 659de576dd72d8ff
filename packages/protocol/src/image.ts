/**
 * Images on the wire. `GET /images` and `GET /images/build/{id}` are Prime's; `/images/local…`
 * are additions: the image store of this machine, what the CLI's `image` commands use. The
 * bodies of those are the node agent's own (`node-api.ts`), as schemas.
 */
import { type Static, Type } from '@sinclair/typebox';
import { Nullable, OneOf, Timestamp } from './schema.js';

/** Status of an image or of its build. */
export const ImageStatus = OneOf('PENDING', 'UPLOADING', 'BUILDING', 'COMPLETED', 'FAILED', 'CANCELLED');
/** Status of an image or of its build. */
export type ImageStatus = Static<typeof ImageStatus>;

/** An image as Prime's clients list it. */
export const ImageListItem = Type.Object({
  id: Type.String(),
  artifactType: Type.Literal('VM_SANDBOX'),
  imageName: Type.String(),
  imageTag: Type.String(),
  status: ImageStatus,
  fullImagePath: Type.String(),
  displayRef: Type.String(),
  errorMessage: Nullable(Type.String()),
  sizeBytes: Type.Integer(),
  visibility: OneOf('PRIVATE', 'PUBLIC'),
  ownerType: OneOf('personal', 'team', 'platform'),
  createdAt: Timestamp,
  completedAt: Nullable(Timestamp),
});
/** An image as Prime's clients list it. */
export type ImageListItem = Static<typeof ImageListItem>;

/** Query of `GET /images`. */
export const ListImagesQuery = Type.Object({
  offset: Type.Optional(Type.Integer({ minimum: 0 })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 250 })),
  search: Type.Optional(Type.String({ maxLength: 256 })),
  teamId: Type.Optional(Type.String({ maxLength: 64 })),
  ownerScope: Type.Optional(Type.String({ maxLength: 32 })),
});
/** Query of `GET /images`. */
export type ListImagesQuery = Static<typeof ListImagesQuery>;

/** Answer of `GET /images`. */
export const ImageList = Type.Object({
  data: Type.Array(ImageListItem),
  totalCount: Type.Integer(),
  total_count: Type.Integer(),
  offset: Type.Integer(),
  limit: Type.Integer(),
});
/** Answer of `GET /images`. */
export type ImageList = Static<typeof ImageList>;

/** Answer of `GET /images/build/{build_id}`: what a sandbox's `pendingImageBuildId` names. */
export const ImageBuild = Type.Object({
  id: Type.String(),
  status: ImageStatus,
  imageName: Type.String(),
  imageTag: Type.String(),
  errorMessage: Nullable(Type.String()),
  createdAt: Timestamp,
  startedAt: Nullable(Timestamp),
  completedAt: Nullable(Timestamp),
  artifacts: Type.Array(Type.Unknown()),
});
/** State of a build. */
export type ImageBuild = Static<typeof ImageBuild>;

/** One image of the local store; {@link ImageInfo} as schema. */
export const LocalImage = Type.Object({
  reference: Type.String(),
  digest: Type.String(),
  rootfsBytes: Type.Integer(),
  contentBytes: Type.Integer(),
  createdAt: Timestamp,
  inUseBy: Type.Integer(),
  labels: Type.Record(Type.String(), Type.String()),
});
/** One image of the local store. */
export type LocalImage = Static<typeof LocalImage>;

/** Answer of `GET /images/local`. */
export const LocalImageList = Type.Object({ images: Type.Array(LocalImage) });
/** The local store. */
export type LocalImageList = Static<typeof LocalImageList>;

/** Answer of `GET /images/local/{reference}`. */
export const LocalImageDetails = Type.Composite([
  LocalImage,
  Type.Object({
    config: Type.Object({
      env: Type.Array(Type.String()),
      user: Type.String(),
      workingDir: Type.String(),
      entrypoint: Type.Array(Type.String()),
      cmd: Type.Array(Type.String()),
      exposedPorts: Type.Array(Type.String()),
    }),
    layers: Type.Array(
      Type.Object({ digest: Type.String(), mediaType: Type.String(), size: Type.Integer() }),
    ),
    platform: Type.Object({ os: Type.String(), architecture: Type.String() }),
  }),
]);
/** `image inspect`. */
export type LocalImageDetails = Static<typeof LocalImageDetails>;

/** Who asks the registry. Used for one pull, and stored and logged nowhere. */
export const RegistryAuth = Type.Object({
  username: Type.String({ minLength: 1, maxLength: 512 }),
  password: Type.String({ minLength: 1, maxLength: 65_536, description: 'Or an access token.' }),
});
/** Who asks the registry. */
export type RegistryAuth = Static<typeof RegistryAuth>;

/** Body of `POST /images/local:pull`. */
export const PullImage = Type.Object({
  reference: Type.String({ minLength: 1, maxLength: 512 }),
  auth: Type.Optional(RegistryAuth),
});
/** Body of `POST /images/local:pull`. */
export type PullImage = Static<typeof PullImage>;

/** Query of `POST /images/local:import`, whose body is the archive itself. */
export const ImportImageQuery = Type.Object({ name: Type.String({ minLength: 1, maxLength: 512 }) });
/** Query of `POST /images/local:import`. */
export type ImportImageQuery = Static<typeof ImportImageQuery>;

/** One line of the NDJSON that pull and import answer; the last has `done` or `error`. */
export const ImageProgressLine = Type.Object({
  stage: Type.Optional(OneOf('resolve', 'download', 'read', 'build', 'finish')),
  doneBytes: Type.Optional(Type.Integer()),
  totalBytes: Type.Optional(Type.Integer()),
  message: Type.Optional(Type.String()),
  done: Type.Optional(LocalImage),
  error: Type.Optional(Type.Object({ code: Type.String(), message: Type.String() })),
});
/** One line of progress. */
export type ImageProgressLine = Static<typeof ImageProgressLine>;

/** Answer of `DELETE /images/local/{reference}`. */
export const LocalImageRemoved = Type.Object({ removed: Type.Boolean() });
/** Answer of `DELETE /images/local/{reference}`. */
export type LocalImageRemoved = Static<typeof LocalImageRemoved>;

/** Answer of `POST /images/local:prune`. */
export const LocalImagesPruned = Type.Object({
  removed: Type.Array(Type.String()),
  freedBytes: Type.Integer(),
});
/** Answer of `POST /images/local:prune`. */
export type LocalImagesPruned = Static<typeof LocalImagesPruned>;
