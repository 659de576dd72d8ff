//! Process 1 up to the point where a template is saved: kernel file systems, modules, devices, network,
//! cgroups; then the agent serves. Nothing here knows what sandbox the machine will be.

pub mod devices;
pub mod modules;
pub mod mounts;
pub mod network;
mod node_rules;
mod power;
mod system;
mod uevents;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use crate::agent::Agent;
use crate::channel::virtio;
use crate::exec::cgroup::Cgroups;
use crate::exec::reaper;
use crate::handover::State;
use crate::place::Place;
use crate::view::pins;
use crate::{log, runtime};

/// A small file system of the agent's own.
pub const OWN_FILES: &str = "/files";
const CGROUPS: &str = "/sys/fs/cgroup";

/// Runs for ever. Returns only if the machine cannot be used, which its console then says.
pub fn run() -> io::Result<()> {
    mounts::mount_kernel_views()?;
    system::open_console();
    reaper::block_sigchld();
    let uevents = uevents::open()?;
    power::block_signals();
    modules::load_listed();
    report("mount the module disk", modules::mount_disk());
    modules::load_usual();
    report("mount the rest", mounts::mount_rest());
    report("make a place for pins", pins::make_place());
    report("make device nodes", devices::make_nodes());
    report("set limits", system::set_limits());
    system::set_sysctls();
    report("bring up loopback", network::bring_up_loopback());
    if kernel_option("sandlot.net=1") {
        report("configure the network", network::configure());
    }
    let cgroups = Cgroups::set_up(Path::new(CGROUPS))?;
    runtime::run(async {
        let agent = Rc::new(Agent::new(Place::Machine, Some(cgroups))?);
        tokio::task::spawn_local(sweep_cgroups(agent.clone()));
        tokio::select! {
            result = agent.reaper.run() => result,
            result = virtio::run(agent.clone()) => result,
            result = uevents::follow(uevents) => result,
            result = power::run() => result,
        }
    })
}

/// Goes on beside an init that has become process 1: what `run` has set up is still there.
pub fn go_on(state: State) -> io::Result<()> {
    reaper::block_sigchld();
    report("find the module helper again", modules::follow_agent());
    let cgroups = Cgroups::set_up(Path::new(CGROUPS))?;
    runtime::run(async {
        let agent = Rc::new(Agent::new(Place::Machine, Some(cgroups))?);
        agent.end_init(state.sandbox);
        tokio::task::spawn_local(sweep_cgroups(agent.clone()));
        // SAFETY: the number was handed to us with the state, and nobody else has it.
        let ctl = unsafe { OwnedFd::from_raw_fd(state.ctl_fd) };
        tokio::select! {
            result = agent.reaper.run() => result,
            result = virtio::go_on(agent.clone(), ctl, state.nonce) => result,
        }
    })
}

/// A template with something missing is better than none: what needs it will say so.
fn report(action: &str, result: io::Result<()>) {
    if let Err(error) = result {
        log!("cannot {action}: {error}");
    }
}

fn kernel_option(option: &str) -> bool {
    std::fs::read_to_string("/proc/cmdline").unwrap_or_default().split_whitespace().any(|word| word == option)
}

async fn sweep_cgroups(agent: Rc<Agent>) {
    if let Some(cgroups) = &agent.cgroups {
        cgroups.sweep(&agent.reaper).await;
    }
}
