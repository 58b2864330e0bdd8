//! Sections of the page, from the verdict to the omissions.

mod cpio;
mod durability;
mod engine;
mod forsa;
mod fusion;
mod jobs;
mod layout;
mod log;
mod omissions;
mod papers;
mod peers;
mod placement;
mod projection;
mod reduction;
mod sql;
mod tpcc;
mod verdict;

use maud::Markup;

use crate::book::Book;

/// A section of the page.
pub(crate) struct Section {
    /// Anchor for links.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) body: fn(&Book) -> Option<Markup>,
}

/// Sections in page order. A section without measurements contains a sentence that says so.
pub(crate) const ALL: [Section; 15] = [
    Section { id: "verdict", title: "Verdict and machine", body: verdict::body },
    Section { id: "papers", title: "The papers' tables", body: papers::body },
    Section { id: "forsa", title: "Parallel jobs", body: forsa::body },
    Section { id: "fusion", title: "Transfer size and queue depth", body: fusion::body },
    Section { id: "engine", title: "Engine over bare memory", body: engine::body },
    Section { id: "log", title: "Message log", body: log::body },
    Section { id: "reduction", title: "Data reduction", body: reduction::body },
    Section { id: "peers", title: "Peers", body: peers::body },
    Section { id: "durability", title: "Durability", body: durability::body },
    Section { id: "cpio", title: "CPU cycles per I/O", body: cpio::body },
    Section { id: "tpcc", title: "Order processing, TPC-C-derived", body: tpcc::body },
    Section { id: "placement", title: "Where parts of a database lie", body: placement::body },
    Section { id: "sql", title: "SQL and live queries", body: sql::body },
    Section { id: "projection", title: "What it means for more cores", body: projection::body },
    Section { id: "omissions", title: "Flags, invalid and skipped", body: omissions::body },
];
