//! Ids of inputs and signals that were applied, so that a repeated one is only acknowledged.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};

/// Ids remembered per exec.
const REMEMBERED_MAX: usize = 1_024;
/// Longer ids are cut: they are UUIDs.
const ID_MAX_BYTES: usize = 128;

/// The newest ids.
#[derive(Default)]
pub struct RecentIds(RefCell<(HashSet<String>, VecDeque<String>)>);

impl RecentIds {
    /// Notes an id; false when it was known. No id at all is always new.
    pub fn is_new(&self, id: Option<&str>) -> bool {
        let Some(id) = id else { return true };
        let id: String = id.chars().take(ID_MAX_BYTES).collect();
        let (known, order) = &mut *self.0.borrow_mut();
        if !known.insert(id.clone()) {
            return false;
        }
        order.push_back(id);
        if order.len() > REMEMBERED_MAX {
            if let Some(oldest) = order.pop_front() {
                known.remove(&oldest);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_an_id_until_many_others_came() {
        let ids = RecentIds::default();
        assert!(ids.is_new(Some("a")));
        assert!(!ids.is_new(Some("a")));
        assert!(ids.is_new(None));
        assert!(ids.is_new(None));
        for number in 0..REMEMBERED_MAX {
            assert!(ids.is_new(Some(&number.to_string())));
        }
        assert!(ids.is_new(Some("a")));
    }
}
