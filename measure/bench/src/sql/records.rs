//! Records for queries: JSON of 300 bytes, determined by seed and number.
//!
//! Numbers in records are uniform and independent, so a condition on a field matches the
//! corresponding share of records.

use std::fmt::Write;

use system::Random;

/// Size of a record's value.
pub(super) const RECORD_BYTES: usize = 300;

/// Number of values of each field, from 0 on.
pub(super) const SYMBOLS: u64 = 1_000;
pub(super) const QTYS: u64 = 10_000;
pub(super) const PRICES: u64 = 1_000;
pub(super) const ACCOUNTS: u64 = 100_000;
pub(super) const LOTS: u64 = 100_000;

/// Words of the notes.
const WORDS: [&str; 16] = [
    "open", "limit", "partial", "routed", "venue", "client", "hedge", "basket", "cross", "fill",
    "cancel", "replace", "auction", "close", "manual", "spread",
];

/// Fields of a record, except its note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) symbol: u64,
    pub(super) qty: u64,
    pub(super) price: u64,
    pub(super) account: u64,
    pub(super) lot: u64,
    pub(super) is_buy: bool,
}

/// A generator of records, numbered from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    seed: u64,
}

impl Records {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    pub(super) fn fields(&self, number: u64) -> Fields {
        let mut draw = self.draw(number);
        Fields {
            symbol: draw.below(SYMBOLS),
            qty: draw.below(QTYS),
            price: draw.below(PRICES),
            account: draw.below(ACCOUNTS),
            lot: draw.below(LOTS),
            is_buy: draw.one_in(2),
        }
    }

    /// Returns the value of a record.
    pub(super) fn text(&self, number: u64) -> String {
        const END: &str = "\"}";
        let Fields { symbol, qty, price, account, lot, is_buy } = self.fields(number);
        let side = if is_buy { "buy" } else { "sell" };
        let mut text = String::with_capacity(RECORD_BYTES);
        write!(
            text,
            "{{\"id\":{number},\"symbol\":\"S{symbol}\",\"qty\":{qty},\"price\":{price},\
             \"side\":\"{side}\",\"account\":\"A{account}\",\"lot\":{lot},\"note\":\""
        )
        .expect("memory takes what is written to it");
        let end = RECORD_BYTES - END.len();
        let mut draw = self.draw(!number);
        while text.len() < end {
            text.push_str(draw.pick(&WORDS));
            text.push(' ');
        }
        text.truncate(end);
        text.push_str(END);
        text
    }

    /// Returns the random numbers of a record, independent of other records.
    fn draw(&self, number: u64) -> Random {
        Random::new(self.seed.wrapping_mul(0xA24B_AED4_963E_E407).wrapping_add(number))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn records_are_json_of_their_length_that_says_their_fields() {
        let records = Records::new(7);
        for number in [0, 1, 99, 12_345_678, 4_000_000_000] {
            let text = records.text(number);
            assert_eq!(text.len(), RECORD_BYTES);
            let value: Value = serde_json::from_str(&text).expect("it is JSON");
            let fields = records.fields(number);
            assert_eq!(value["id"].as_u64(), Some(number));
            assert_eq!(value["qty"].as_u64(), Some(fields.qty));
            assert_eq!(value["symbol"], format!("S{}", fields.symbol));
            assert_eq!(value["side"], if fields.is_buy { "buy" } else { "sell" });
        }
    }

    #[test]
    fn fields_are_drawn_evenly_and_follow_from_the_seed() {
        let records = Records::new(1);
        let count = |is: fn(Fields) -> bool| {
            (0..100_000).filter(|&number| is(records.fields(number))).count()
        };
        assert!((49_000..51_000).contains(&count(|it| it.qty >= QTYS / 2)));
        assert!((800..1_200).contains(&count(|it| it.qty >= QTYS / 100 * 99)));
        assert!((50..150).contains(&count(|it| it.symbol == 17)));
        assert!((20..80).contains(&count(|it| it.symbol == 17 && it.is_buy)));
        assert_eq!(records.fields(5), Records::new(1).fields(5));
        assert_ne!(records.fields(5), Records::new(2).fields(5));
    }
}
