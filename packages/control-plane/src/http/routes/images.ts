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
    listImages: ({ caller, query }) => listImages(app, caller, query),
    getImageBuild: ({ params }) => getImageBuild(app, params['build_id'] ?? ''),
    listLocalImages: async ({ caller }) => ({ images: await listLocalImages(app, caller) }),
    inspectLocalImage: ({ caller, params }) => inspectLocalImage(app, caller, params['reference'] ?? ''),
    pullLocalImage: ({ caller, body }) => pullLocalImage(app, caller, body),
    importLocalImage: ({ caller, query, stream, headers }) =>
      importLocalImage(app, caller, query.name, stream, headers['content-length']),
    pruneLocalImages: ({ caller }) => pruneLocalImages(app, caller),
    removeLocalImage: ({ caller, params }) => removeLocalImage(app, caller, params['reference'] ?? ''),
  };
}
