//! Where the output of a command goes: to everybody attached, and into the ring for those who come later.
//!
//! A `Reader` is one attached stream. One that is slow makes `deliver` wait, which makes the command wait on its pipe. With
//! several attached, one that takes nothing for [`STALL_LIMIT`] while others wait is let go, so that a
//! forgotten viewer cannot stop the command for everybody.
//!
//! What a reader took from here may still be lost on its way to the client. So a session keeps what was
//! taken as well, and a client that says where it stands gets what follows, to the byte.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use super::contract::ExecEnd;
use super::frame;
use super::position::{Attachment, Offsets, Position};
use super::reader::{QUEUE_BYTES, Reader, WINDOW_BYTES};
use super::ring::{Piece, Ring};

/// Output kept.
pub const KEPT_MAX_BYTES: usize = 1024 * 1024;
/// Kept per exec once all execs together keep too much.
pub const KEPT_MIN_BYTES: usize = 64 * 1024;
/// How long one of several readers may take nothing.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// Named readers remembered for each session.
const STARTS_MAX: usize = 64;

/// What happens to output that nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Thrown away: a command that ends with its stream.
    Nothing,
    /// Kept, and given to whoever attaches next unless somebody got it: a session.
    Undelivered,
    /// Given to everybody who attaches: the start command's log.
    Always,
}

/// Output of one exec.
pub struct Output {
    keeping: Keeping,
    ring: RefCell<Ring>,
    readers: RefCell<Vec<Rc<Reader>>>,
    /// Where the newest named readers began.
    starts: RefCell<VecDeque<(String, Position)>>,
    /// How it ended, once everything before that was handed on.
    end: RefCell<Option<ExecEnd>>,
    discarded: Cell<u64>,
    was_attached: Cell<bool>,
}

impl Output {
    /// Nothing written yet, nobody attached.
    pub fn new(keeping: Keeping) -> Output {
        Output {
            keeping,
            ring: RefCell::new(Ring::new(KEPT_MAX_BYTES)),
            readers: RefCell::default(),
            starts: RefCell::default(),
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
        let mut ring = self.ring.borrow_mut();
        let from = ring.end().total();
        // Before the first reader of a command without session, which always comes: its stream is the
        // reason for the command.
        if self.keeping == Keeping::Nothing && self.was_attached.get() {
            ring.pass(kind, payload);
            if readers.is_empty() {
                self.discarded.set(self.discarded.get() + payload.len() as u64);
            }
        } else {
            ring.push(kind, payload);
        }
        if !readers.is_empty() {
            let piece = Piece { frame: frame::encode(kind, payload), from, until: ring.end().total() };
            for reader in readers.iter() {
                reader.push(piece.clone());
            }
        }
    }

    async fn wait_for(&self, slow: &Rc<Reader>) {
        if self.readers.borrow().len() == 1 {
            // Woken also when a second one attaches: then the other rule applies.
            slow.emptied().await;
        } else if tokio::time::timeout(STALL_LIMIT, slow.emptied()).await.is_err() {
            slow.close();
            self.remove(slow);
        }
    }

    /// Attaches a reader: first what was kept and it has not got, then what comes.
    pub fn attach(&self, attachment: &Attachment) -> Rc<Reader> {
        if self.keeping != Keeping::Nothing {
            self.replace(attachment.reader.as_deref());
        }
        let start = self.start_of(attachment);
        let mut ring = self.ring.borrow_mut();
        let kept = ring.after(&start.offsets);
        if self.keeping == Keeping::Nothing {
            ring.discard();
        }
        let reader = Rc::new(Reader::new(attachment, start, kept, ring.handed()));
        if let Some(end) = &*self.end.borrow() {
            self.tell_end(&reader, end);
        }
        for other in self.readers.borrow().iter() {
            other.wake_writers();
        }
        self.readers.borrow_mut().push(reader.clone());
        self.was_attached.set(true);
        reader
    }

    /// A request that is repeated takes the place of the first, whose connection is lost.
    fn replace(&self, name: Option<&str>) {
        let same = |reader: &&Rc<Reader>| name.is_some() && reader.name() == name;
        let lost: Vec<_> = self.readers.borrow().iter().filter(same).cloned().collect();
        for reader in lost {
            self.detach(&reader);
        }
    }

    /// Where a reader begins: behind what it has; a new one behind what anybody has.
    fn start_of(&self, attachment: &Attachment) -> Position {
        let ring = self.ring.borrow();
        let mut starts = self.starts.borrow_mut();
        let name = attachment.reader.as_deref();
        let before = starts.iter().find(|(known, _)| Some(known.as_str()) == name).map(|(_, start)| *start);
        let start = match attachment.received.or(before) {
            Some(position) => {
                let offsets = position.offsets.within(&ring.begin(), &ring.end());
                Position { offsets, dropped: position.dropped + offsets.since(&position.offsets) }
            }
            None if self.keeping == Keeping::Undelivered => {
                Position { offsets: ring.unhanded(), dropped: ring.dropped() }
            }
            None => Position { offsets: ring.begin(), dropped: 0 },
        };
        if let (Some(name), None) = (name, before) {
            starts.push_back((name.to_string(), start));
            if starts.len() > STARTS_MAX {
                starts.pop_front();
            }
        }
        start
    }

    /// A client says what it has got.
    pub fn confirm(&self, name: &str, received: &Offsets) {
        for reader in self.readers.borrow().iter().filter(|reader| reader.name() == Some(name)) {
            reader.confirm(received);
        }
    }

    /// A reader has gone. What it did not take is there for the next one.
    pub fn detach(&self, reader: &Rc<Reader>) {
        reader.close();
        self.remove(reader);
        reader.wake_writers();
    }

    fn remove(&self, reader: &Rc<Reader>) {
        self.readers.borrow_mut().retain(|other| !Rc::ptr_eq(other, reader));
    }

    /// The command has ended: readers are told so last.
    pub fn finish(&self, end: ExecEnd) {
        for reader in self.readers.borrow().iter() {
            self.tell_end(reader, &end);
        }
        *self.end.borrow_mut() = Some(end);
    }

    fn tell_end(&self, reader: &Reader, end: &ExecEnd) {
        let dropped_bytes = if self.keeping == Keeping::Undelivered { reader.start().dropped } else { 0 };
        reader.finish(&ExecEnd { dropped_bytes, ..end.clone() });
    }

    /// Bytes that nobody will get.
    pub fn dropped_bytes(&self) -> u64 {
        match self.keeping {
            Keeping::Nothing => self.discarded.get(),
            _ => self.ring.borrow().dropped(),
        }
    }

    /// Memory held for later readers.
    pub fn kept_bytes(&self) -> usize {
        self.ring.borrow().bytes()
    }

    /// Gives up what somebody has got, to save memory. A client that confirms may come back for it.
    pub fn discard_handed(&self) {
        if !self.has_confirming_reader() {
            self.ring.borrow_mut().discard_handed();
        }
    }

    /// Gives all kept output up, to save memory.
    pub fn discard_kept(&self) {
        self.ring.borrow_mut().discard();
    }

    /// Lowers or restores the limit of what is kept. What is on its way to a client that confirms stays.
    pub fn set_limit(&self, bytes: usize) {
        let least = if self.has_confirming_reader() { WINDOW_BYTES as usize + QUEUE_BYTES } else { 0 };
        self.ring.borrow_mut().set_limit(bytes.max(least));
    }

    fn has_confirming_reader(&self) -> bool {
        self.readers.borrow().iter().any(|reader| reader.confirms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::frame::kind::{END, STDERR, STDOUT};
    use crate::exec::reader::tests::{named, next_text, run};

    #[test]
    fn what_was_written_while_detached_is_replayed_once() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            output.deliver(STDOUT, b"before").await;
            let first = output.attach(&Attachment::default());
            assert_eq!(next_text(&first).await, b"before");
            output.deliver(STDOUT, b"live").await;
            output.finish(ExecEnd::default());
            assert_eq!(next_text(&first).await, b"live");
            assert_eq!(first.next().await.unwrap()[0], END);
            assert!(first.next().await.is_none());
            let second = output.attach(&Attachment::default());
            assert_eq!(second.next().await.unwrap()[0], END);
        });
    }

    #[test]
    fn undelivered_output_waits_for_the_next_reader() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let first = output.attach(&Attachment::default());
            output.deliver(STDOUT, b"one").await;
            output.deliver(STDOUT, b"two").await;
            assert_eq!(next_text(&first).await, b"one");
            output.detach(&first);
            output.deliver(STDOUT, b"three").await;
            let second = output.attach(&Attachment::default());
            assert_eq!(next_text(&second).await, b"twothree");
        });
    }

    #[test]
    fn the_log_of_a_start_command_can_be_read_again() {
        run(async {
            let output = Output::new(Keeping::Always);
            output.deliver(STDOUT, b"log").await;
            assert_eq!(next_text(&output.attach(&Attachment::default())).await, b"log");
            assert_eq!(next_text(&output.attach(&Attachment::default())).await, b"log");
        });
    }

    #[test]
    fn a_client_goes_on_where_it_stands() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let first = output.attach(&named("a"));
            output.deliver(STDOUT, b"one").await;
            output.deliver(STDERR, b"two").await;
            next_text(&first).await;
            next_text(&first).await;
            // Nobody has seen yet that the first connection is lost.
            let second = output.attach(&Attachment { received: at(1, 2, 0), ..named("a") });
            assert!(first.next().await.is_none() && first.was_dropped());
            assert_eq!(next_text(&second).await, b"ne");
            assert_eq!(next_text(&second).await, b"o");
            output.deliver(STDOUT, b"three").await;
            assert_eq!(next_text(&second).await, b"three");
            assert_eq!(second.start().dropped, 0);
        });
    }

    #[test]
    fn a_repeated_attach_begins_where_the_first_one_did() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let other = output.attach(&Attachment::default());
            output.deliver(STDOUT, b"for another").await;
            next_text(&other).await;
            output.detach(&other);
            output.deliver(STDOUT, b"new").await;
            let lost = output.attach(&named("b"));
            assert_eq!(next_text(&lost).await, b"new");
            let again = output.attach(&named("b"));
            assert_eq!((next_text(&again).await, again.start()), (b"new".to_vec(), lost.start()));
            output.detach(&again);
            output.finish(ExecEnd::default());
            assert_eq!(output.attach(&named("c")).next().await.unwrap()[0], END);
        });
    }

    #[test]
    fn what_is_no_longer_kept_is_counted_for_the_client_that_misses_it() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            output.set_limit(1024);
            let first = output.attach(&named("a"));
            for _ in 0..4 {
                output.deliver(STDOUT, &[b'x'; 1000]).await;
                next_text(&first).await;
            }
            let second = output.attach(&Attachment { received: at(500, 0, 7), ..named("a") });
            let kept = next_text(&second).await.len() as u64;
            assert_eq!(second.start().offsets.stdout + kept, 4000);
            assert_eq!(second.start().dropped, 7 + 4000 - 500 - kept);
            assert_eq!(output.dropped_bytes(), 0, "somebody has got them all");
            output.finish(ExecEnd::default());
            let end: serde_json::Value =
                serde_json::from_slice(&next_text(&second).await).expect("the end is JSON");
            assert_eq!(end["droppedBytes"], second.start().dropped);
        });
    }

    #[test]
    fn a_client_that_is_ahead_gets_what_comes() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            output.deliver(STDOUT, b"abc").await;
            let reader = output.attach(&Attachment { received: at(100, 0, 0), ..Attachment::default() });
            assert_eq!((reader.start().offsets.stdout, reader.is_empty()), (3, true));
        });
    }

    fn at(stdout: u64, stderr: u64, dropped: u64) -> Option<Position> {
        Some(Position { offsets: Offsets { stdout, stderr, pty: 0 }, dropped })
    }

    #[test]
    fn two_readers_get_the_same() {
        run(async {
            let output = Output::new(Keeping::Undelivered);
            let (one, two) = (output.attach(&Attachment::default()), output.attach(&Attachment::default()));
            output.deliver(STDOUT, b"x").await;
            assert_eq!(next_text(&one).await, b"x");
            assert_eq!(next_text(&two).await, b"x");
        });
    }
}
