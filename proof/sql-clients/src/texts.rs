//! Generator of random queries that parse texts (regular expressions, intervals, time zones) and
//! queries with sorting aggregates.

use random::Random;

const LETTERS: &[&str] = &["a", "b", "c", "aa", "ab", "ba", " ", "é", ".", "", "A", "1", "ſ", "É"];
const ATOMS: &[&str] =
    &["a", "b", "[ab]", ".", "\\s", "\\d", "(?:ab)", "(?:a|ab)", "[^a]", "c", "\\.", "é", "S"];
const QUANTIFIERS: &[&str] = &["", "", "*", "+", "?", "{1,2}", "{2}"];
const REPLACEMENTS: &[&str] = &["-", "", "<\\&>", "\\\\", "\\0", "x\\1y", "$1", "a\\"];
const FLAGS: &[&str] = &["", ", 'g'", ", 'gi'", ", 'i'", ", 'c'", ", 'z'"];
const UNITS: &[&str] = &["us", "ms", "s", "min", "hours", "day", "week", "mon", "years", "decade"];
const NUMBERS: &[&str] =
    &["1", "-2", "0.5", "1.5", "-0.25", ".5", "3.1234567", "0.0000005", "2.9999995", "-1.7", "10"];
const CLOCKS: &[&str] = &["04:05:06", "-00:00:00.1234567", "25:00", "00:00:00.0000015", "1:2:3.5"];
const ZONES: &[&str] = &[
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Gaza",
    "Etc/GMT+5",
    "UTC",
];
const DAYS: &[&str] = &["day", "week", "month", "quarter", "year", "hour"];
const PARTS: &[&str] = &["0", "0.1", "0.25", "0.3", "0.5", "0.9", "1", "NULL::float8", "1.5"];

/// Random queries that need no table.
pub struct Texts {
    random: Random,
}

impl Texts {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    /// Draws a query.
    pub fn query(&mut self) -> String {
        match self.random.below(6) {
            0..=2 => self.found(),
            3 => format!("SELECT interval '{}'", self.interval()),
            4 => self.zoned(),
            _ => self.sorted(),
        }
    }

    fn found(&mut self) -> String {
        let (text, pattern) = (self.text(), self.pattern());
        let flags = self.pick(FLAGS);
        match self.random.below(9) {
            0 | 1 => {
                let replacement = self.pick(REPLACEMENTS);
                format!("SELECT regexp_replace('{text}', '{pattern}', '{replacement}'{flags})")
            }
            2 => format!("SELECT regexp_matches('{text}', '{pattern}'{flags})"),
            3 => format!("SELECT regexp_split_to_array('{text}', '{pattern}'{flags})"),
            4 => format!("SELECT p FROM regexp_split_to_table('{text}', '{pattern}') p"),
            5 => format!("SELECT regexp_match('{text}', '{pattern}'{flags})"),
            6 => format!(
                "SELECT '{text}' ~* '{pattern}', '{text}' !~ '{pattern}', '{text}' ILIKE '%{}%'",
                self.text()
            ),
            7 => {
                let (start, number) = (1 + self.random.below(3), 1 + self.random.below(2));
                let end = self.random.below(2);
                format!(
                    "SELECT regexp_count('{text}', '{pattern}', {start}, 'i'), \
                     regexp_instr('{text}', '{pattern}', {start}, {number}, {end}), \
                     regexp_substr('{text}', '{pattern}', {start}, {number})"
                )
            }
            _ => format!(
                "SELECT regexp_count('{text}', '{pattern}'), regexp_instr('{text}', '{pattern}'), \
                 regexp_substr('{text}', '{pattern}')"
            ),
        }
    }

    fn text(&mut self) -> String {
        (0..self.random.below(7)).map(|_| self.pick(LETTERS)).collect()
    }

    fn pattern(&mut self) -> String {
        let parts = 1 + self.random.below(2);
        let alternatives: Vec<_> = (0..parts).map(|_| self.alternative()).collect();
        alternatives.join("|")
    }

    fn alternative(&mut self) -> String {
        let mut pattern = String::from(self.pick(&["", "", "", "^"]));
        for _ in 0..=self.random.below(2) {
            let (atom, quantifier) = (self.pick(ATOMS), self.pick(QUANTIFIERS));
            let part = format!("{atom}{quantifier}");
            pattern += &if self.random.below(4) == 0 { format!("({part})") } else { part };
        }
        pattern + self.pick(&["", "", "", "$"])
    }

    fn interval(&mut self) -> String {
        let mut words = Vec::new();
        for _ in 0..=self.random.below(2) {
            words.push(format!("{} {}", self.pick(NUMBERS), self.pick(UNITS)));
        }
        match self.random.below(5) {
            0 => words.push(self.pick(CLOCKS).to_owned()),
            1 => words = vec![self.pick(CLOCKS).to_owned()],
            2 => words.push("ago".to_owned()),
            _ => {}
        }
        words.join(" ")
    }

    fn zoned(&mut self) -> String {
        let (zone, day) = (self.pick(ZONES), self.pick(DAYS));
        // Times from 1970 to 2036, often in an hour with a clock change.
        let second = self.random.below(2_114_000_000) / 900 * 900;
        format!(
            "SELECT to_timestamp({second}) AT TIME ZONE '{zone}', to_timestamp({second}) AT TIME \
             ZONE 'UTC' AT TIME ZONE '{zone}', date_trunc('{day}', to_timestamp({second}), \
             '{zone}')"
        )
    }

    fn sorted(&mut self) -> String {
        let count = 1 + self.random.below(6);
        let numbers = ["1", "2", "2", "3", "-1", "0", "NULL"];
        let values: Vec<_> =
            (0..count).map(|_| format!("({}, 'x')", self.pick(&numbers))).collect();
        let (part, order) = (self.pick(PARTS), self.pick(&["", " DESC"]));
        let of = self.pick(&["a", "a::numeric", "a::text", "a::float8", "a::bigint"]);
        format!(
            "SELECT percentile_disc({part}) WITHIN GROUP (ORDER BY {of}{order}), mode() WITHIN \
             GROUP (ORDER BY {of}{order}), jsonb_object_agg(coalesce(a, 9), {of})::text, \
             json_object_agg(b, {of} ORDER BY a) FILTER (WHERE a > 1) \
             FROM (VALUES (NULL::int, 'x'), {}) t(a, b)",
            values.join(", ")
        )
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        self.random.pick(from)
    }
}
