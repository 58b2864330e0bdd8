//! Records that queries are asked about: JSON of 300 bytes, the same for the same seed and number.
//!
//! Numbers in them are drawn evenly from a range, each independently of the others, so that a
//! condition on a field lets through the share of records that its range says.

use std::io::Write;

/// Of a record's value.
pub(super) const RECORD_BYTES: usize = 300;

/// How many values each field has, from 0 on.
pub(super) const SYMBOLS: u64 = 1_000;
pub(super) const QTYS: u64 = 10_000;
pub(super) const PRICES: u64 = 1_000;
pub(super) const ACCOUNTS: u64 = 100_000;
pub(super) const LOTS: u64 = 100_000;

/// Of these the notes are made.
const WORDS: [&str; 16] = [
    "open", "limit", "partial", "routed", "venue", "client", "hedge", "basket", "cross", "fill",
    "cancel", "replace", "auction", "close", "manual", "spread",
];

/// What a record says, but for its note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) symbol: u64,
    pub(super) qty: u64,
    pub(super) price: u64,
    pub(super) account: u64,
    pub(super) lot: u64,
    pub(super) is_buy: bool,
}

/// A source of records, which are numbered from 0 on.
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
            is_buy: draw.below(2) == 0,
        }
    }

    /// Appends the value of a record.
    pub(super) fn put(&self, number: u64, into: &mut Vec<u8>) {
        self.put_saying(number, self.fields(number), into);
    }

    /// The same with other fields.
    pub(super) fn put_saying(&self, number: u64, fields: Fields, into: &mut Vec<u8>) {
        const END: &[u8] = b"\"}";
        let start = into.len();
        let Fields { symbol, qty, price, account, lot, is_buy } = fields;
        let side = if is_buy { "buy" } else { "sell" };
        write!(
            into,
            "{{\"id\":{number},\"symbol\":\"S{symbol}\",\"qty\":{qty},\"price\":{price},\
             \"side\":\"{side}\",\"account\":\"A{account}\",\"lot\":{lot},\"note\":\""
        )
        .expect("memory takes what is written to it");
        let end = start + RECORD_BYTES - END.len();
        let mut draw = self.draw(!number);
        while into.len() < end {
            let word = usize::try_from(draw.below(WORDS.len() as u64)).expect("a small number");
            into.extend_from_slice(WORDS[word].as_bytes());
            into.push(b' ');
        }
        into.truncate(end);
        into.extend_from_slice(END);
    }

    fn draw(&self, number: u64) -> Draw {
        Draw(self.seed.wrapping_mul(0xA24B_AED4_963E_E407).wrapping_add(number))
    }
}

/// Numbers by splitmix64, which any state begins well.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        // The multiple keeps the numbers of neighbouring records apart.
        self.0 = self.0.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).expect("below the limit")
    }
}

/// A number of which each bit depends on all bits of another.
pub(super) fn mixed(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn records_are_json_of_their_length_that_says_their_fields() {
        let records = Records::new(7);
        for number in [0, 1, 99, 12_345_678, 4_000_000_000] {
            let mut bytes = vec![b' '];
            records.put(number, &mut bytes);
            assert_eq!(bytes.len(), 1 + RECORD_BYTES);
            let value: Value = serde_json::from_slice(&bytes).expect("it is JSON");
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
