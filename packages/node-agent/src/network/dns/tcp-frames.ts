/**
 * DNS over TCP: each message with its length before it (RFC 1035, 4.2.2). Used on both sides of the proxy.
 */

/** Puts parts of a stream together to messages. */
export class TcpFrames {
  private rest: Buffer = Buffer.alloc(0);

  /** The messages that this part completes. */
  push(part: Buffer): Buffer[] {
    this.rest = this.rest.length === 0 ? part : Buffer.concat([this.rest, part]);
    const messages: Buffer[] = [];
    while (this.rest.length >= 2) {
      const end = 2 + this.rest.readUInt16BE(0);
      if (this.rest.length < end) break;
      messages.push(this.rest.subarray(2, end));
      this.rest = this.rest.subarray(end);
    }
    return messages;
  }
}

/** A message with its length before it. */
export function frameTcp(message: Buffer): Buffer {
  const framed = Buffer.alloc(2 + message.length);
  framed.writeUInt16BE(message.length, 0);
  message.copy(framed, 2);
  return framed;
}
