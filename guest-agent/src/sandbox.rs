//! What a machine became by `/init`: whose it is, and what commands in it start from.

use serde::{Deserialize, Serialize};

use crate::exec::environment::Environment;

/// Settings of the sandbox that this machine is. As JSON it is handed to the agent beside an init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Its hostname.
    pub hostname: String,
    /// System, image, create and secrets, in this order.
    pub environment: Environment,
    /// The image's USER; empty: root.
    pub user: String,
    /// The image's WORKDIR; `/` if it has none.
    pub working_dir: String,
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox {
            id: String::new(),
            hostname: String::new(),
            environment: Environment::default(),
            user: String::new(),
            working_dir: "/".to_string(),
        }
    }
}
