// Writes ustar entries: made-up layers for the image and files groups, never larger in memory than one file.

/** One entry with its content, padded. */
export function tarEntry(name, content = Buffer.alloc(0), { folder = false } = {}) {
  const header = Buffer.alloc(512);
  const octal = (value, at, length) => header.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at);
  header.write(name, 0, 100);
  octal(folder ? 0o755 : 0o644, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(content.length, 124, 12);
  octal(1_700_000_000, 136, 12);
  header.write('        ', 148);
  header.write(folder ? '5' : '0', 156);
  header.write('ustar\x0000', 257);
  header.write(
    `${header
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
  );
  return Buffer.concat([header, content, Buffer.alloc((512 - (content.length % 512)) % 512)]);
}

/** The two empty blocks at the end. */
export const tarEnd = Buffer.alloc(1024);
