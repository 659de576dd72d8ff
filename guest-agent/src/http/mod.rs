//! The calls of the node agent over one HTTP/2 connection: how requests are read, answered and refused.
//! `routes` maps each path of `packages/protocol/src/guest-api.ts` to the part that does the work.

pub mod answer;
pub mod body;
pub mod error;
pub mod query;
pub mod routes;
