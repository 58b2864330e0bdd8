//! Charts as inline SVG. Colours, strokes and fonts come from the page's style sheet, so that the
//! same drawing works in light, dark and print.

mod axis;
mod bars;
mod heat;
mod lines;
mod seconds;
mod strip;
mod timeline;

pub(crate) use bars::{Bar, Bars};
pub(crate) use heat::Heat;
pub(crate) use lines::{Line, Lines};
pub(crate) use seconds::{Second, Seconds, SecondsLane};
pub(crate) use strip::{Strip, Strips};
pub(crate) use timeline::{Lane, Timeline};

/// Colours of our series and of others.
pub(crate) const OWN_SERIES: usize = 0;
pub(crate) const OTHER_SERIES: usize = 6;
