//! `/init`: what makes a restored machine somebody.

pub mod contract;

use std::path::Path;

use h2::RecvStream;

use self::contract::{GuestInit, GuestInitResult};
use crate::agent::Agent;
use crate::http::body;
use crate::http::error::CallError;
use crate::sandbox::Sandbox;

/// Largest request: environments can be long.
const REQUEST_MAX_BYTES: usize = 8 * 1024 * 1024;

/// `POST /init`.
pub async fn post_init(agent: &Agent, body: &mut RecvStream) -> Result<GuestInitResult, CallError> {
    let bytes = body::read_all(body, REQUEST_MAX_BYTES).await?;
    let request: GuestInit = serde_json::from_slice(&bytes)
        .map_err(|error| CallError::invalid(format!("the init request is not valid: {error}")))?;
    agent.begin_init()?;
    let sandbox = sandbox_of(agent, &request);
    agent.end_init(Some(sandbox));
    let shell = ["/bin/bash", "/bin/sh"]
        .into_iter()
        .find(|shell| Path::new(shell).exists())
        .unwrap_or("");
    Ok(GuestInitResult {
        shell: shell.to_string(),
        ..GuestInitResult::default()
    })
}

fn sandbox_of(agent: &Agent, request: &GuestInit) -> Sandbox {
    let mut environment = agent.system_environment();
    environment.set("HOSTNAME", &request.hostname);
    environment.set_lines(&request.image.env);
    environment.set_all(&request.env);
    environment.set_all(&request.secrets);
    let working_dir = match request.image.working_dir.as_str() {
        "" => "/".to_string(),
        path => format!("/{}", path.trim_start_matches('/')),
    };
    Sandbox {
        id: request.sandbox_id.clone(),
        environment,
        user: request.image.user.clone(),
        working_dir,
    }
}
