//! The guest agent of Sandlot: process 1 of every guest. One binary with these faces, told apart here and
//! nowhere else:
//!
//! * `modprobe`, by the name it is called: the kernel's module helper (`modprobe`);
//! * `@agent-probe`, by its argument zero: does nothing and succeeds (proves that commands can run);
//! * `@agent-view`, by its argument zero: makes one view and ends (`view::maker`);
//! * process 1: the agent itself (`boot`);
//! * `@sandlot-agent`: the agent beside an init of the image, which is process 1 then (`handover`);
//! * with arguments: an agent without a machine, for tests (`folder`), or its version.

mod agent;
mod boot;
mod channel;
mod cli;
mod connect;
mod entry;
mod exec;
mod files;
mod folder;
mod freeze;
mod handover;
mod health;
mod http;
mod init;
mod log;
mod modprobe;
mod os;
mod place;
mod runtime;
mod sandbox;
mod signals;
mod view;
mod warm;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let name = arguments.first().map_or("", String::as_str);
    if name == exec::start::PROBE {
        return ExitCode::SUCCESS;
    }
    if name == view::maker::NAME {
        return view::maker::main();
    }
    if name.ends_with("modprobe") {
        return modprobe::main(arguments.get(1..).unwrap_or_default());
    }
    if name == handover::NAME {
        return handover::resume();
    }
    if std::process::id() == 1 {
        return be_process_1();
    }
    match cli::parse(arguments.get(1..).unwrap_or_default()) {
        Ok(cli::Command::Version) => {
            println!("sandlot-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(cli::Command::ServeFolder { socket_dir, root, die_with_parent }) => {
            match folder::run(&socket_dir, root, die_with_parent) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("sandlot-agent: cannot serve in {}: {error}", socket_dir.display());
                    ExitCode::FAILURE
                }
            }
        }
        Err(reason) => {
            eprintln!("sandlot-agent: {reason}\n{}", cli::USAGE);
            ExitCode::from(2)
        }
    }
}

/// Never returns while the machine can be used. The kernel panics when process 1 ends, and the host sees that.
fn be_process_1() -> ExitCode {
    match boot::run() {
        Ok(()) => log!("nothing more to do"),
        Err(error) => log!("cannot go on: {error}"),
    }
    ExitCode::FAILURE
}
