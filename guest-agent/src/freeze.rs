//! `POST /freeze` and `/thaw`: the root file system stands still while its disk is snapshotted.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::agent::Agent;
use crate::files::transfer;
use crate::http::answer::Done;
use crate::http::error::CallError;
use crate::{log, os};

/// `linux/fs.h`.
const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;
/// A host that froze and was lost must not leave a machine that cannot write.
const FROZEN_MAX: Duration = Duration::from_secs(60);

/// `POST /freeze`. Once frozen, a second one changes nothing.
pub async fn post_freeze(agent: &Rc<Agent>) -> Result<Done, CallError> {
    agent.require_initialised()?;
    if !agent.place.is_machine() || agent.freeze.get().is_some() {
        return Ok(Done {});
    }
    transfer::blocking(|| change(FIFREEZE, "freeze the root file system")).await?;
    let number = u64::from_ne_bytes(os::random());
    agent.freeze.set(Some(number));
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(FROZEN_MAX).await;
        if agent.freeze.get() == Some(number) {
            log!("nobody thawed the root file system for {} s: thawing it", FROZEN_MAX.as_secs());
            let _ = post_thaw(&agent).await;
        }
    });
    Ok(Done {})
}

/// `POST /thaw`. On a file system that is not frozen it changes nothing.
pub async fn post_thaw(agent: &Agent) -> Result<Done, CallError> {
    if agent.freeze.take().is_some() {
        transfer::blocking(|| change(FITHAW, "thaw the root file system")).await?;
    }
    Ok(Done {})
}

fn change(request: libc::c_ulong, action: &str) -> Result<(), CallError> {
    let changed = || -> io::Result<()> {
        let root = os::open(Path::new("/"), libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        // SAFETY: both requests ignore their argument.
        os::check(unsafe { libc::ioctl(root.as_raw_fd(), request, 0) })?;
        Ok(())
    };
    changed().map_err(|error| CallError::from_io(action, &error))
}
