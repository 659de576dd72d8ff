/** Follows a pull or an import to its end with a progress bar. Used by `image pull` and `image import`. */
import type { ImageEvent, ImageInfo } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import { startProgress } from '../output/progress.js';

const stageTexts: Record<string, string> = {
  resolve: 'asking the registry',
  download: 'downloading',
  read: 'reading the archive',
  build: 'building the root file system',
  finish: 'finishing',
};

/** The image, once it is there. */
export async function followImage(
  context: CliContext,
  what: string,
  events: AsyncIterable<ImageEvent>,
): Promise<ImageInfo> {
  const progress = await startProgress(context.out, what);
  let image: ImageInfo | undefined;
  try {
    for await (const event of events) {
      if ('done' in event) image = event.done;
      else {
        // The message of this stage is the full name of what was asked for.
        const said = event.stage === 'resolve' ? undefined : event.message;
        const text = `${what}: ${said ?? stageTexts[event.stage] ?? event.stage}`;
        progress.update(event.doneBytes, event.totalBytes, text);
      }
    }
  } finally {
    progress.stop();
  }
  // The SDK throws when the stream ends without it.
  return image as ImageInfo;
}
