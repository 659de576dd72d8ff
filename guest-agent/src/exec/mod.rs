//! Commands in the sandbox. The way of one command, file by file: `stream` reads its request and carries
//! its frames; `registry` knows it by id; `start` turns the request into a plan (`environment`, `lookup`,
//! `users`); `spawn`, `child` and `clone` make the process (`filter` takes calls from those in sealed views); `supervise` watches it to its end; `output`
//! keeps and passes on what it writes (`ring`, `reader`, `position`), `input` feeds it; `tree` and `cgroup` find and end all of its processes.

pub mod cgroup;
pub mod child;
pub mod clone;
pub mod command;
pub mod contract;
pub mod environment;
pub mod filter;
pub mod frame;
pub mod input;
pub mod lookup;
pub mod output;
pub mod position;
pub mod pty;
pub mod reader;
pub mod reaper;
pub mod recent;
pub mod registry;
pub mod ring;
pub mod spawn;
pub mod start;
pub mod stream;
pub mod supervise;
pub mod tree;
pub mod users;
