//! One attached stream of a command's output: what is queued for it, how far it got, and when its writer has
//! to wait. Made and fed by `output`, emptied by `stream`.
//!
//! A client that confirms what it has is never sent more than [`WINDOW_BYTES`] beyond it, which `output` keeps for it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::contract::ExecEnd;
use super::frame::{self, HEADER_BYTES, kind};
use super::position::{Attachment, Offsets, Position};
use super::ring::{Handed, Piece};

/// Bytes queued for one reader before the command has to wait.
pub const QUEUE_BYTES: usize = 128 * 1024;
/// Bytes on their way to a client that confirms what it gets.
pub const WINDOW_BYTES: u64 = 256 * 1024;

/// One attached stream.
pub struct Reader {
    name: Option<String>,
    start: Position,
    queue: RefCell<VecDeque<Piece>>,
    queued_bytes: Cell<usize>,
    finished: Cell<bool>,
    closed: Cell<bool>,
    handed: Rc<Handed>,
    /// Bytes of output that were taken from the queue.
    taken: Cell<u64>,
    /// How many of these the client has; `None` when it does not say.
    confirmed: Cell<Option<u64>>,
    filled: Notify,
    /// Standard output and error may both wait for room: always wake all.
    emptied: Notify,
}

impl Reader {
    /// Attached as the attachment says, from `start`; `kept` is what it gets first.
    pub fn new(attachment: &Attachment, start: Position, kept: Vec<Piece>, handed: Rc<Handed>) -> Reader {
        Reader {
            name: attachment.reader.clone(),
            start,
            queued_bytes: Cell::new(kept.iter().map(|piece| piece.frame.len()).sum()),
            queue: RefCell::new(kept.into()),
            finished: Cell::new(false),
            closed: Cell::new(false),
            handed,
            taken: Cell::new(0),
            confirmed: Cell::new(attachment.confirms.then_some(0)),
            filled: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// By which a client is known again.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Where it began.
    pub fn start(&self) -> &Position {
        &self.start
    }

    /// The next frame; `None` after the last one, or when this reader was let go.
    pub async fn next(&self) -> Option<Bytes> {
        loop {
            if self.closed.get() {
                return None;
            }
            let piece = if self.may_send() { self.queue.borrow_mut().pop_front() } else { None };
            if let Some(Piece { frame, from, until }) = piece {
                self.queued_bytes.set(self.queued_bytes.get() - frame.len());
                if frame[0] != kind::END {
                    self.handed.note(from, until);
                    self.taken.set(self.taken.get() + (frame.len() - HEADER_BYTES) as u64);
                }
                if !self.is_full() {
                    self.emptied.notify_waiters();
                }
                return Some(frame);
            }
            if self.finished.get() && self.queue.borrow().is_empty() {
                return None;
            }
            self.filled.notified().await;
        }
    }

    /// Waits until there is something to take, or the end.
    pub async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    /// There is nothing to take, and nothing has ended.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty() && !self.finished.get() && !self.closed.get()
    }

    /// It was let go because it did not read while others waited, or was replaced.
    pub fn was_dropped(&self) -> bool {
        self.closed.get()
    }

    /// Its client says what it has got.
    pub fn confirms(&self) -> bool {
        self.confirmed.get().is_some()
    }

    /// The command has to wait for it.
    pub fn is_full(&self) -> bool {
        !self.closed.get() && self.queued_bytes.get() >= QUEUE_BYTES
    }

    /// Waits until it is not full any more, or something about the readers changes.
    pub async fn emptied(&self) {
        self.emptied.notified().await;
    }

    /// Whoever waits for it looks again.
    pub fn wake_writers(&self) {
        self.emptied.notify_waiters();
    }

    /// The client has got this much.
    pub fn confirm(&self, received: &Offsets) {
        let received = received.since(&self.start.offsets);
        if self.confirmed.get().is_some_and(|before| received > before) {
            self.confirmed.set(Some(received));
            self.filled.notify_one();
        }
    }

    /// Queues a frame.
    pub fn push(&self, piece: Piece) {
        self.queued_bytes.set(self.queued_bytes.get() + piece.frame.len());
        self.queue.borrow_mut().push_back(piece);
        self.filled.notify_one();
    }

    /// Queues the last frame.
    pub fn finish(&self, end: &ExecEnd) {
        let frame = frame::encode(kind::END, &serde_json::to_vec(end).unwrap_or_default());
        self.push(Piece { frame, from: 0, until: 0 });
        self.finished.set(true);
    }

    /// Nothing more is given to it.
    pub fn close(&self) {
        self.closed.set(true);
        self.filled.notify_one();
    }

    fn may_send(&self) -> bool {
        let next = self.queue.borrow().front().map_or(0, |piece| piece.until - piece.from);
        self.confirmed.get().is_none_or(|confirmed| self.taken.get() + next <= confirmed + WINDOW_BYTES)
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use super::*;
    use crate::exec::frame::kind::{STDERR, STDOUT};
    use crate::exec::output::{Keeping, Output};

    pub fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(async {
            tokio::time::timeout(Duration::from_secs(30), test).await.expect("the test hangs");
        });
    }

    pub async fn next_text(reader: &Reader) -> Vec<u8> {
        reader.next().await.unwrap()[HEADER_BYTES..].to_vec()
    }

    pub fn named(name: &str) -> Attachment {
        Attachment { reader: Some(name.to_string()), ..Attachment::default() }
    }

    #[test]
    fn a_slow_reader_makes_the_writer_wait() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let reader = output.attach(&Attachment::default());
            let payload = vec![0u8; 64 * 1024];
            output.deliver(STDOUT, &payload).await;
            output.deliver(STDOUT, &payload).await;
            let third = output.deliver(STDOUT, &payload);
            tokio::pin!(third);
            let waits = tokio::time::timeout(Duration::from_millis(50), &mut third).await;
            assert!(waits.is_err(), "the third write must wait");
            reader.next().await.unwrap();
            third.await;
        });
    }

    #[test]
    fn a_reader_that_leaves_frees_the_writer() {
        run(async {
            let output = Rc::new(Output::new(Keeping::Nothing));
            let reader = output.attach(&Attachment::default());
            let payload = vec![0u8; 200 * 1024];
            output.deliver(STDOUT, &payload).await;
            let blocked = output.deliver(STDOUT, &payload);
            tokio::pin!(blocked);
            assert!(tokio::time::timeout(Duration::from_millis(20), &mut blocked).await.is_err());
            output.detach(&reader);
            blocked.await;
            assert_eq!(output.dropped_bytes(), payload.len() as u64);
        });
    }

    #[test]
    fn a_reader_that_leaves_frees_both_writers() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let reader = output.attach(&Attachment::default());
            let payload = vec![0u8; 200 * 1024];
            output.deliver(STDOUT, &payload).await;
            let both = async { tokio::join!(output.deliver(STDOUT, b"a"), output.deliver(STDERR, b"b")) };
            tokio::pin!(both);
            assert!(tokio::time::timeout(Duration::from_millis(20), &mut both).await.is_err());
            output.detach(&reader);
            both.await;
        });
    }

    #[test]
    fn a_client_that_confirms_is_not_sent_more_than_is_kept() {
        run(async {
            let output = Rc::new(Output::new(Keeping::Undelivered));
            let reader = output.attach(&Attachment { confirms: true, ..named("a") });
            let payload = vec![0u8; 64 * 1024];
            for _ in 0..WINDOW_BYTES / payload.len() as u64 {
                output.deliver(STDOUT, &payload).await;
                reader.next().await.unwrap();
            }
            output.deliver(STDOUT, &payload).await;
            let held = tokio::time::timeout(Duration::from_millis(20), reader.next()).await;
            assert!(held.is_err(), "the window is full");
            output.confirm("a", &Offsets { stdout: 64 * 1024, ..Offsets::default() });
            reader.next().await.unwrap();
        });
    }
}
