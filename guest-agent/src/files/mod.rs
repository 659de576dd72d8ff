//! Files of the sandbox, as root: `write` and `read` one file, `tar_in` and `tar_out` whole folders,
//! `stat` what is there. `transfer` joins their blocking work to the streams of the host.

pub mod confined;
pub mod owner;
pub mod read;
pub mod routes;
pub mod sink;
pub mod stat;
pub mod tar_in;
pub mod tar_out;
pub mod transfer;
pub mod write;
