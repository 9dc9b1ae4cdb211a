//! What events of earlier requests have looked like, so that small bodies are read as fast as large ones.
//!
//! It changes how fast an event is read and never what is read ([`tally_core::event::body::Layouts`]), so it does not matter who
//! has sent what it was learnt from. Each thread has its own; what is worked out belongs to the declarations in force.

use std::cell::RefCell;
use std::sync::Arc;
use tally_core::counter::{Declarations, Plan};
use tally_core::event::body::Layouts;
use tally_core::limits::LAYOUTS_KEPT_MAX;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

#[derive(Default)]
struct Known {
    declarations: Arc<Declarations>,
    /// One for each request that was read beside others.
    layouts: Vec<Layouts<Plan>>,
}

pub fn take(declarations: &Arc<Declarations>) -> Layouts<Plan> {
    KNOWN.with_borrow_mut(|known| {
        if !Arc::ptr_eq(&known.declarations, declarations) {
            *known = Known { declarations: Arc::clone(declarations), layouts: Vec::new() };
        }
        known.layouts.pop().unwrap_or_default()
    })
}

pub fn keep(declarations: &Arc<Declarations>, layouts: Layouts<Plan>) {
    KNOWN.with_borrow_mut(|known| {
        if Arc::ptr_eq(&known.declarations, declarations) && known.layouts.len() < LAYOUTS_KEPT_MAX {
            known.layouts.push(layouts);
        }
    });
}
