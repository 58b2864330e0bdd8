//! Horizontal bar chart with intervals, an optional reference line and optional limit marks.

use maud::{Markup, PreEscaped, html};

use super::axis::{Axis, name_width, round, short_name};
use crate::figure::{Estimated, Format};

const WIDTH: f64 = 760.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 8.0;
const BAR: f64 = 13.0;
const DISTANCE: f64 = 22.0;
const GROUP_DISTANCE: f64 = 34.0;

/// Length by which a limit mark extends above and below its bar.
const LIMIT_REACH: f64 = 3.5;

/// Style sheet of standalone pictures.
const PICTURE_STYLE: &str = include_str!("picture.css");

/// Layout of a chart.
struct Layout {
    axis: Axis,
    /// Left edge of the bars.
    left: f64,
    /// Top edge of each bar.
    places: Vec<f64>,
    bottom: f64,
}

impl Layout {
    fn height(&self) -> f64 {
        self.bottom + 36.0
    }

    fn view_box(&self) -> String {
        format!("0 0 {WIDTH} {}", self.height())
    }
}

pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) hint: &'static str,
    pub(crate) format: Format,
    /// Reference value for all bars, with its name.
    pub(crate) line: Option<(f64, String)>,
    /// Names of the parts of stacked bars.
    pub(crate) part_names: &'static [&'static str],
    /// Figure to the right of the bars.
    pub(crate) beside: Option<(&'static str, Format)>,
    pub(crate) bars: Vec<Bar>,
}

impl Bars {
    /// Creates a bar chart without line, parts and side figures.
    pub(crate) fn new(
        title: impl Into<String>,
        hint: &'static str,
        format: Format,
        bars: Vec<Bar>,
    ) -> Self {
        let title = title.into();
        Self { title, hint, format, line: None, part_names: &[], beside: None, bars }
    }

    /// Creates a chart of values of which more is better, sorted by heading.
    pub(crate) fn higher_is_better(title: &str, format: Format, mut bars: Vec<Bar>) -> Self {
        bars.sort_by(|a, b| a.group.cmp(&b.group));
        Self::new(title, "higher is better", format, bars)
    }
}

#[derive(Default)]
pub(crate) struct Bar {
    /// Heading. Bars with the same heading are grouped.
    pub(crate) group: String,
    pub(crate) name: String,
    /// Stacked parts. Most bars have one.
    pub(crate) parts: Vec<Estimated>,
    /// Colour of the first part.
    pub(crate) series: usize,
    /// Limit of this bar, with its description.
    pub(crate) limit: Option<(f64, String)>,
    /// Related figure, shown beside the bar.
    pub(crate) beside: Option<Estimated>,
}

impl Bar {
    /// Creates a bar of one part below a heading.
    pub(crate) fn new(group: impl Into<String>, name: impl Into<String>, part: Estimated) -> Self {
        let parts = vec![part];
        Self { group: group.into(), name: name.into(), parts, ..Self::default() }
    }

    fn sum(&self) -> f64 {
        self.parts.iter().map(Estimated::value).sum()
    }

    fn reach(&self) -> f64 {
        match self.parts.as_slice() {
            [one] => one.ends().1,
            _ => self.sum(),
        }
    }
}

impl Bars {
    pub(crate) fn show(&self) -> Markup {
        let layout = self.layout();
        html! {
            figure.chart.wide {
                figcaption { (self.title) span.hint { (self.format.hint(self.hint)) } }
                svg viewBox=(layout.view_box()) role="img" aria-label=(self.title) {
                    (self.drawing(&layout))
                }
                (self.key())
            }
        }
    }

    /// Returns the chart as a standalone SVG file that follows the reader's light or dark
    /// preference.
    pub(crate) fn picture(&self) -> String {
        let layout = self.layout();
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(layout.height())
                viewBox=(layout.view_box()) role="img" aria-label=(self.title) {
                style { (PreEscaped(PICTURE_STYLE)) }
                rect.paper width="100%" height="100%" {}
                (self.drawing(&layout))
            }
        };
        picture.into_string() + "\n"
    }

    fn layout(&self) -> Layout {
        let limits = self.bars.iter().filter_map(|bar| bar.limit.as_ref().map(|limit| limit.0));
        let max = self.bars.iter().map(Bar::reach).chain(limits).fold(0.0, f64::max);
        let max = self.line.as_ref().map_or(max, |(value, _)| value.max(max));
        let left = name_width(self.bars.iter().map(|bar| &*bar.name));
        let places = self.places();
        let bottom = places.last().map_or(TOP, |place| place + DISTANCE);
        Layout { axis: Axis::linear(max, self.format, (left, RIGHT)), left, places, bottom }
    }

    fn drawing(&self, layout: &Layout) -> Markup {
        let Layout { axis, left, places, bottom } = layout;
        html! {
            (axis.draw_level((TOP, *bottom), self.format))
            @if let Some((name, format)) = self.beside {
                text.name x=(WIDTH) y=(bottom + 29.0) text-anchor="end" {
                    (name) ", " (format.name())
                }
            }
            @for (index, bar) in self.bars.iter().enumerate() {
                @if index == 0 || self.bars[index - 1].group != bar.group {
                    text.group x="0" y=(places[index] - 8.0) { (bar.group) }
                }
                (self.bar(bar, (*left, places[index]), axis))
            }
            (self.held_against(*bottom, axis))
            @for (bar, y) in self.bars.iter().zip(places) {
                (self.numbers(bar, y + BAR / 2.0, axis))
            }
        }
    }

    fn held_against(&self, bottom: f64, axis: &Axis) -> Markup {
        html! {
            @if let Some((value, name)) = &self.line {
                line.floor x1=(axis.place(*value)) x2=(axis.place(*value))
                    y1=(TOP) y2=(bottom) {}
                text.floorname x=(axis.place(*value)) y=(bottom + 29.0)
                    text-anchor="middle" { (name) }
            }
        }
    }

    /// Returns the legend of colours and marks, if needed.
    fn key(&self) -> Markup {
        let has_limits = self.bars.iter().any(|bar| bar.limit.is_some());
        html! {
            @if !self.part_names.is_empty() || has_limits {
                p.key {
                    @for (index, name) in self.part_names.iter().enumerate() {
                        span class={ "s" (index % 8) } { span.swatch {} } (name) "  "
                    }
                    @if has_limits { "┃ goal" }
                }
            }
        }
    }

    /// Returns the top edges of the bars, with space for headings.
    fn places(&self) -> Vec<f64> {
        let mut place = TOP;
        let mut places = Vec::with_capacity(self.bars.len());
        for (index, bar) in self.bars.iter().enumerate() {
            let begins = index == 0 || self.bars[index - 1].group != bar.group;
            place += if begins && !bar.group.is_empty() { GROUP_DISTANCE } else { 0.0 };
            places.push(place);
            place += DISTANCE;
        }
        places
    }

    fn bar(&self, bar: &Bar, (left, y): (f64, f64), axis: &Axis) -> Markup {
        let mut from = 0.0;
        let parts: Vec<(f64, f64, &Estimated)> = bar
            .parts
            .iter()
            .map(|part| {
                let begin = from;
                from += part.value();
                (begin, from, part)
            })
            .collect();
        let middle = y + BAR / 2.0;
        html! {
            text.barname x=(left - 8.0) y=(middle + 4.0) text-anchor="end" {
                (short_name(&bar.name, left))
            }
            @for (index, (begin, end, part)) in parts.iter().enumerate() {
                rect class={ "bar s" ((bar.series + index) % 8) } x=(axis.place(*begin)) y=(y)
                    width=(width(axis, *begin, *end)) height=(BAR) tabindex="0"
                    aria-label=(self.says(bar, index, part))
                    data-v=(part.value()) data-p=(part.median.pointer) {
                    title { (self.says(bar, index, part)) }
                }
            }
        }
    }

    /// Draws the numbers at a bar's end, above all lines for legibility.
    fn numbers(&self, bar: &Bar, middle: f64, axis: &Axis) -> Markup {
        html! {
            @if let [one] = bar.parts.as_slice() { (self.end(bar, one, (middle, axis))) }
            @if let Some((_, format)) = self.beside {
                @if let Some(beside) = &bar.beside {
                    text.beside x=(WIDTH) y=(middle + 4.0) text-anchor="end"
                        data-v=(beside.value()) data-p=(beside.median.pointer) {
                        (format.text(beside.value()))
                    }
                }
            }
        }
    }

    fn says(&self, bar: &Bar, index: usize, part: &Estimated) -> String {
        let sentence = part.sentence(self.format);
        let name = match self.part_names.get(index) {
            Some(part_name) => format!("{}, {part_name}", bar.name),
            None => bar.name.clone(),
        };
        match &bar.limit {
            Some((_, limit)) => format!("{name}: {sentence}; {limit}"),
            None => format!("{name}: {sentence}"),
        }
    }

    /// Draws the interval, the limit and the number.
    fn end(&self, bar: &Bar, one: &Estimated, (middle, axis): (f64, &Axis)) -> Markup {
        let limit = bar.limit.as_ref().map(|limit| axis.place(limit.0));
        let end = axis.place(one.ends().1);
        // Avoids drawing the number over the mark.
        let number = match limit {
            Some(limit) if (end - 2.0..end + 46.0).contains(&limit) => limit,
            _ => end,
        };
        html! {
            @if one.interval.is_some() {
                line.whisker x1=(axis.place(one.ends().0)) x2=(end) y1=(middle) y2=(middle) {}
            }
            @if let Some(limit) = limit {
                line.limit x1=(limit) x2=(limit)
                    y1=(middle - BAR / 2.0 - LIMIT_REACH) y2=(middle + BAR / 2.0 + LIMIT_REACH) {}
            }
            text.value x=(number + 6.0) y=(middle + 4.0)
                data-v=(one.value()) data-p=(one.median.pointer) {
                (self.format.text(one.value()))
            }
        }
    }
}

fn width(axis: &Axis, begin: f64, end: f64) -> f64 {
    round((axis.place(end) - axis.place(begin)).max(0.5))
}
