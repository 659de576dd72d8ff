//! One request: found by method and path, and given to the part that answers it.

use std::rc::Rc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, StatusCode};

use super::answer::Answer;
use super::error::CallError;
use super::query::{Query, decode_path};
use crate::agent::Agent;
use crate::channel::connection::InputWindow;
use crate::exec::stream;
use crate::files::routes as files;
use crate::{connect, freeze, health, init, view, warm};

/// Answers one request; runs as a task of its own.
pub async fn handle(
    agent: Rc<Agent>,
    window: Rc<InputWindow>,
    request: Request<RecvStream>,
    response: SendResponse<Bytes>,
) {
    let (head, mut body) = request.into_parts();
    let answer = Answer::new(response);
    let (query, path) = match (Query::parse(head.uri.query()), decode_path(head.uri.path())) {
        (Ok(query), Ok(path)) => (query, path),
        (Err(error), _) | (_, Err(error)) => return answer.refuse(&error),
    };
    let segments: Vec<&str> = path.iter().map(String::as_str).collect();
    match (head.method.as_str(), segments.as_slice()) {
        ("GET", ["health"]) => answer.json(Ok(health::health(&agent))),
        ("POST", ["warm"]) => answer.json(warm::post_warm(&agent).await),
        ("POST", ["fixups"]) => answer.json(init::post_fixups(&agent, &mut body).await),
        ("POST", ["freeze"]) => answer.json(freeze::post_freeze(&agent).await),
        ("POST", ["thaw"]) => answer.json(freeze::post_thaw(&agent).await),
        ("PUT", ["files"]) => answer.json(files::put_file(&agent, &query, &mut body).await),
        ("GET", ["files"]) => files::get_file(agent, &query, answer).await,
        ("GET", ["stat"]) => answer.json(files::get_stat(&agent, &query).await),
        ("GET", ["list"]) => answer.json(files::get_list(&agent, &query).await),
        ("PUT", ["tar"]) => answer.json(files::put_tar(&agent, &query, &mut body).await),
        ("GET", ["tar"]) => files::get_tar(agent, &query, answer).await,
        ("POST", ["connect"]) => connect::post_connect(agent, window, &query, body, answer).await,
        ("POST", ["init"]) => answer.json(init::post_init(&agent, &mut body).await),
        ("POST", ["exec"]) => stream::post_exec(agent, window, &query, body, answer).await,
        ("GET", ["exec"]) => answer.json(Ok(agent.execs.list())),
        ("POST", ["exec", id, "attach"]) => {
            stream::post_attach(agent, window, id, &query, body, answer).await
        }
        ("POST", ["exec", id, "input"]) => {
            answer.json(stream::post_input(&agent, id, &query, &mut body).await);
        }
        ("POST", ["exec", id, "received"]) => answer.json(stream::post_received(&agent, id, &query)),
        ("POST", ["exec", id, "signal"]) => {
            answer.json(stream::post_signal(&agent, id, &query).await);
        }
        ("POST", ["exec", id, "resize"]) => answer.json(stream::post_resize(&agent, id, &query)),
        ("POST", ["views"]) => answer.json(view::post_views(&agent, &mut body).await),
        ("POST", ["start-command"]) => answer.json(stream::post_start_command(&agent, &mut body).await),
        (method, _) => {
            let message = format!("the guest agent has no call {method} {}", head.uri.path());
            answer.refuse(&CallError::new(StatusCode::NOT_FOUND, "ENOSYS", message));
        }
    }
}
