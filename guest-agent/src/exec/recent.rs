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
    /// It was noted. No id at all never was.
    pub fn has(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.0.borrow().0.contains(&cut(id)))
    }

    /// Notes an id.
    pub fn note(&self, id: Option<&str>) {
        let Some(id) = id.map(cut) else { return };
        let (known, order) = &mut *self.0.borrow_mut();
        if !known.insert(id.clone()) {
            return;
        }
        order.push_back(id);
        if order.len() > REMEMBERED_MAX {
            if let Some(oldest) = order.pop_front() {
                known.remove(&oldest);
            }
        }
    }
}

fn cut(id: &str) -> String {
    id.chars().take(ID_MAX_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_an_id_until_many_others_came() {
        let ids = RecentIds::default();
        assert!(!ids.has(Some("a")));
        ids.note(Some("a"));
        assert!(ids.has(Some("a")));
        ids.note(None);
        assert!(!ids.has(None));
        for number in 0..REMEMBERED_MAX {
            ids.note(Some(&number.to_string()));
        }
        assert!(!ids.has(Some("a")));
    }
}
