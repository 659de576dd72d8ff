//! Answers: JSON, refusals, and the start of a streamed answer.

use bytes::Bytes;
use h2::SendStream;
use h2::server::SendResponse;
use http::{Response, StatusCode};
use serde::Serialize;

use super::error::CallError;

/// An empty object: the answer of calls that only do something.
#[derive(Serialize)]
pub struct Done {}

/// The one chance to answer a request.
pub struct Answer(SendResponse<Bytes>);

impl Answer {
    /// Wraps the response half of a request.
    pub fn new(response: SendResponse<Bytes>) -> Answer {
        Answer(response)
    }

    /// Answers 200 with a value, or refuses.
    pub fn json<T: Serialize>(self, result: Result<T, CallError>) {
        match result {
            Ok(value) => match serde_json::to_vec(&value) {
                Ok(body) => self.whole(StatusCode::OK, body),
                Err(error) => self.refuse(&CallError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "EIO",
                    format!("the answer cannot be written as JSON: {error}"),
                )),
            },
            Err(error) => self.refuse(&error),
        }
    }

    /// Refuses the call.
    pub fn refuse(self, error: &CallError) {
        let body = serde_json::to_vec(&error.body()).unwrap_or_default();
        self.whole(error.status, body);
    }

    /// Begins a streamed answer. `Err` when the host has gone.
    pub fn stream(mut self, headers: &[(&'static str, String)]) -> Result<SendStream<Bytes>, h2::Error> {
        let mut response = Response::builder().header("content-type", "application/octet-stream");
        for (name, value) in headers {
            response = response.header(*name, value);
        }
        let response = response.body(()).unwrap_or_default();
        self.0.send_response(response, false)
    }

    fn whole(mut self, status: StatusCode, body: Vec<u8>) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
        // The host may have cancelled meanwhile: then the answer is of no use to anybody.
        if let Ok(mut stream) = self.0.send_response(response, false) {
            let _ = stream.send_data(body.into(), true);
        }
    }
}
