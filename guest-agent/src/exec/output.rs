//! Where the output of a command goes: to everybody attached, or into the ring while nobody is.
//!
//! An attached reader that is slow makes `deliver` wait, which makes the command wait on its pipe. With
//! several attached, one that takes nothing for [`STALL_LIMIT`] while others wait is let go, so that a
//! forgotten viewer cannot stop the command for everybody.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::frame::{self, HEADER_BYTES};
use super::ring::Ring;

/// Output kept while nobody is attached.
pub const KEPT_MAX_BYTES: usize = 1024 * 1024;
/// Kept per exec once all execs together keep too much.
pub const KEPT_MIN_BYTES: usize = 64 * 1024;
/// Bytes queued for one reader before the command has to wait.
const QUEUE_BYTES: usize = 128 * 1024;
/// How long one of several readers may take nothing.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// What happens to output that nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Thrown away: a command that ends with its stream.
    Nothing,
    /// Kept until it is delivered once: a session.
    Undelivered,
    /// The newest is kept, delivered or not: the start command's log.
    Always,
}

/// Output of one exec.
pub struct Output {
    keeping: Keeping,
    ring: RefCell<Ring>,
    readers: RefCell<Vec<Rc<Reader>>>,
    /// The last frame, once the command has ended and everything before it was handed on.
    end: RefCell<Option<Bytes>>,
    discarded: Cell<u64>,
    was_attached: Cell<bool>,
}

/// One attached stream.
pub struct Reader {
    queue: RefCell<VecDeque<Bytes>>,
    queued_bytes: Cell<usize>,
    finished: Cell<bool>,
    closed: Cell<bool>,
    filled: Notify,
    /// Standard output and error may both wait for room: always wake all.
    emptied: Notify,
}

impl Output {
    /// Nothing written yet, nobody attached.
    pub fn new(keeping: Keeping) -> Output {
        Output {
            keeping,
            ring: RefCell::new(Ring::new(KEPT_MAX_BYTES)),
            readers: RefCell::new(Vec::new()),
            end: RefCell::new(None),
            discarded: Cell::new(0),
            was_attached: Cell::new(false),
        }
    }

    /// Hands output on; waits while an attached reader has enough to read.
    pub async fn deliver(&self, kind: u8, payload: &[u8]) {
        loop {
            let slow = self.readers.borrow().iter().find(|reader| reader.is_full()).cloned();
            match slow {
                Some(slow) => self.wait_for(&slow).await,
                None => break,
            }
        }
        self.put(kind, payload);
    }

    /// The same without waiting: for a line that the agent itself writes.
    pub fn put(&self, kind: u8, payload: &[u8]) {
        let readers = self.readers.borrow();
        if !readers.is_empty() {
            let frame = frame::encode(kind, payload);
            for reader in readers.iter() {
                reader.push(frame.clone());
            }
        }
        match self.keeping {
            Keeping::Always => self.ring.borrow_mut().push(kind, payload),
            Keeping::Undelivered if readers.is_empty() => self.ring.borrow_mut().push(kind, payload),
            // Before the first reader, which always comes: its stream is the reason for the command.
            Keeping::Nothing if !self.was_attached.get() => self.ring.borrow_mut().push(kind, payload),
            Keeping::Nothing if readers.is_empty() => {
                self.discarded.set(self.discarded.get() + payload.len() as u64);
            }
            _ => {}
        }
    }

    async fn wait_for(&self, slow: &Rc<Reader>) {
        if self.readers.borrow().len() == 1 {
            // Woken also when a second one attaches: then the other rule applies.
            slow.emptied.notified().await;
        } else if tokio::time::timeout(STALL_LIMIT, slow.emptied.notified()).await.is_err() {
            slow.close();
            self.remove(slow);
        }
    }

    /// Attaches a reader: first what was kept, then what comes.
    pub fn attach(&self) -> Rc<Reader> {
        let mut ring = self.ring.borrow_mut();
        let kept = if self.keeping == Keeping::Always { ring.frames() } else { ring.take() };
        let reader = Rc::new(Reader {
            queued_bytes: Cell::new(kept.iter().map(Bytes::len).sum()),
            queue: RefCell::new(kept.into()),
            finished: Cell::new(false),
            closed: Cell::new(false),
            filled: Notify::new(),
            emptied: Notify::new(),
        });
        if let Some(end) = &*self.end.borrow() {
            reader.finish(end.clone());
        }
        for other in self.readers.borrow().iter() {
            other.emptied.notify_waiters();
        }
        self.readers.borrow_mut().push(reader.clone());
        self.was_attached.set(true);
        reader
    }

    /// A reader has gone. What it did not take is kept again for the next one.
    pub fn detach(&self, reader: &Rc<Reader>) {
        reader.close();
        self.remove(reader);
        if self.keeping == Keeping::Undelivered && self.readers.borrow().is_empty() {
            let mut ring = self.ring.borrow_mut();
            while let Some(frame) = reader.queue.borrow_mut().pop_back() {
                if frame[0] != frame::kind::END {
                    ring.push_front(frame[0], &frame[HEADER_BYTES..]);
                }
            }
        }
        reader.emptied.notify_waiters();
    }

    fn remove(&self, reader: &Rc<Reader>) {
        self.readers.borrow_mut().retain(|other| !Rc::ptr_eq(other, reader));
    }

    /// The command has ended: readers get this frame last.
    pub fn finish(&self, end: Bytes) {
        for reader in self.readers.borrow().iter() {
            reader.finish(end.clone());
        }
        *self.end.borrow_mut() = Some(end);
    }

    /// Bytes that nobody will get.
    pub fn dropped_bytes(&self) -> u64 {
        self.ring.borrow().dropped() + self.discarded.get()
    }

    /// Memory held for later readers.
    pub fn kept_bytes(&self) -> usize {
        self.ring.borrow().bytes()
    }

    /// Gives the kept output up, to save memory.
    pub fn discard_kept(&self) {
        self.ring.borrow_mut().discard();
    }

    /// Lowers or restores the limit of what is kept.
    pub fn set_limit(&self, bytes: usize) {
        self.ring.borrow_mut().set_limit(bytes);
    }
}

impl Reader {
    /// The next frame; `None` after the last one, or when this reader was let go.
    pub async fn next(&self) -> Option<Bytes> {
        loop {
            let frame = self.queue.borrow_mut().pop_front();
            if let Some(frame) = frame {
                self.queued_bytes.set(self.queued_bytes.get() - frame.len());
                if !self.is_full() {
                    self.emptied.notify_waiters();
                }
                return Some(frame);
            }
            if self.finished.get() || self.closed.get() {
                return None;
            }
            self.filled.notified().await;
        }
    }

    /// There is nothing to take, and nothing has ended.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty() && !self.finished.get() && !self.closed.get()
    }

    /// It was let go because it did not read while others waited.
    pub fn was_dropped(&self) -> bool {
        self.closed.get()
    }

    fn is_full(&self) -> bool {
        !self.closed.get() && self.queued_bytes.get() >= QUEUE_BYTES
    }

    fn push(&self, frame: Bytes) {
        self.queued_bytes.set(self.queued_bytes.get() + frame.len());
        self.queue.borrow_mut().push_back(frame);
        self.filled.notify_one();
    }

    fn finish(&self, end: Bytes) {
        self.push(end);
        self.finished.set(true);
    }

    fn close(&self) {
        self.closed.set(true);
        self.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::frame::kind::{END, STDERR, STDOUT};

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(async {
            tokio::time::timeout(Duration::from_secs(30), test).await.expect("the test hangs");
        });
    }

    async fn next_text(reader: &Reader) -> Vec<u8> {
        reader.next().await.unwrap()[HEADER_BYTES..].to_vec()
    }

    #[test]
    fn what_was_written_while_detached_is_replayed_once() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            output.deliver(STDOUT, b"before").await;
            let first = output.attach();
            assert_eq!(next_text(&first).await, b"before");
            output.deliver(STDOUT, b"live").await;
            output.finish(frame::encode(END, b"{}"));
            assert_eq!(next_text(&first).await, b"live");
            assert_eq!(first.next().await.unwrap()[0], END);
            assert!(first.next().await.is_none());
            let second = output.attach();
            assert_eq!(second.next().await.unwrap()[0], END);
        });
    }

    #[test]
    fn undelivered_output_waits_for_the_next_reader() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let first = output.attach();
            output.deliver(STDOUT, b"one").await;
            output.deliver(STDOUT, b"two").await;
            assert_eq!(next_text(&first).await, b"one");
            output.detach(&first);
            output.deliver(STDOUT, b"three").await;
            let second = output.attach();
            assert_eq!(next_text(&second).await, b"twothree");
        });
    }

    #[test]
    fn a_slow_reader_makes_the_writer_wait() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let reader = output.attach();
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
            let reader = output.attach();
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
            let reader = output.attach();
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
    fn the_log_of_a_start_command_can_be_read_again() {
        run(async {
            let output = Output::new(Keeping::Always);
            output.deliver(STDOUT, b"log").await;
            assert_eq!(next_text(&output.attach()).await, b"log");
            assert_eq!(next_text(&output.attach()).await, b"log");
        });
    }

    #[test]
    fn two_readers_get_the_same() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let (one, two) = (output.attach(), output.attach());
            output.deliver(STDOUT, b"x").await;
            assert_eq!(next_text(&one).await, b"x");
            assert_eq!(next_text(&two).await, b"x");
        });
    }
}
