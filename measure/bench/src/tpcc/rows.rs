//! Initial rows of a database, by clause 4.3.3.1, in the format of COPY: tab-separated fields, `\N`
//! for null.

use std::fmt::Write;

use super::draw::{CUSTOMERS, Constants, DISTRICTS, Draw, ITEMS, LAST_NAMES, last_name};

/// Timestamp of all rows, constant so that the same seed gives the same data.
const ENTERED: &str = "2026-01-01 00:00:00+00";

/// First order that is not yet delivered.
const FIRST_OPEN_ORDER: u32 = 2_101;

/// Tables, and the initial number of rows per warehouse (approximate for order lines).
pub(super) const TABLES: [(&str, u32); 8] = [
    ("warehouse", 1),
    ("district", DISTRICTS),
    ("customer", DISTRICTS * CUSTOMERS),
    ("history", DISTRICTS * CUSTOMERS),
    ("stock", ITEMS),
    ("orders", DISTRICTS * CUSTOMERS),
    ("new_order", DISTRICTS * (CUSTOMERS + 1 - FIRST_OPEN_ORDER)),
    ("order_line", DISTRICTS * CUSTOMERS * 10),
];

/// Returns the approximate number of rows of a database.
pub(super) fn row_count(warehouses: u32) -> u64 {
    let of_each: u64 = TABLES.iter().map(|(_, count)| u64::from(*count)).sum();
    of_each * u64::from(warehouses) + u64::from(ITEMS)
}

/// Receiver of newline-terminated rows, in pieces.
pub(super) trait Sink {
    type Error;
    fn take(&mut self, rows: &mut String) -> Result<(), Self::Error>;
}

/// Number of rows per piece.
const PIECE_ROWS: u32 = 500;

pub(super) fn items<S: Sink>(seed: u64, sink: &mut S) -> Result<(), S::Error> {
    let mut draw = Draw::of_part(seed, 0);
    pieces(1..=ITEMS, sink, |rows, item| {
        let (image, name) = (draw.between(1, 10_000), draw.letters((14, 24)));
        let price = money(draw.between(100, 10_000));
        line(rows, format_args!("{item}\t{image}\t{name}\t{price}\t{}", draw.data_of_item()));
    })
}

/// A warehouse. Its rows depend only on the seed and its number.
pub(super) struct Warehouse {
    pub(super) id: u32,
    pub(super) seed: u64,
}

/// Common data of orders and their lines, drawn identically for both tables.
struct Order {
    district: u32,
    id: u32,
    customer: u32,
    line_count: u32,
}

impl Warehouse {
    /// Generates the rows of one of [`TABLES`].
    pub(super) fn rows<S: Sink>(&self, table: &str, sink: &mut S) -> Result<(), S::Error> {
        match table {
            "warehouse" => self.warehouse(sink),
            "district" => self.districts(sink),
            "customer" => self.customers(sink),
            "history" => self.history(sink),
            "stock" => self.stock(sink),
            "orders" => self.orders(sink),
            "new_order" => self.new_orders(sink),
            "order_line" => self.order_lines(sink),
            other => unreachable!("{other} is no table of a warehouse"),
        }
    }

    /// Returns the table's own random sequence.
    fn draw(&self, table: u64) -> Draw {
        Draw::of_part(self.seed, (u64::from(self.id) << 8) | table)
    }

    fn warehouse<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut draw = self.draw(1);
        let (name, address, tax) = (draw.letters((6, 10)), address(&mut draw), tax(&mut draw));
        pieces(self.id..=self.id, sink, |rows, id| {
            line(rows, format_args!("{id}\t{name}\t{address}\t{tax}\t300000.00"));
        })
    }

    fn districts<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut draw = self.draw(2);
        pieces(1..=DISTRICTS, sink, |rows, id| {
            let (name, address, tax) = (draw.letters((6, 10)), address(&mut draw), tax(&mut draw));
            let next = CUSTOMERS + 1;
            let own = self.id;
            line(rows, format_args!("{id}\t{own}\t{name}\t{address}\t{tax}\t30000.00\t{next}"));
        })
    }

    fn customers<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let constant = Constants::new(self.seed).last_name_at_load;
        let mut draw = self.draw(3);
        pieces(0..=DISTRICTS * CUSTOMERS - 1, sink, |rows, index| {
            let (district, id) = (index / CUSTOMERS + 1, index % CUSTOMERS + 1);
            // Each name occurs at least once.
            let number = match id <= LAST_NAMES {
                true => id - 1,
                false => draw.last_name_number(constant),
            };
            let (own, last, first) = (self.id, last_name(number), draw.letters((8, 16)));
            let (address, phone) = (address(&mut draw), draw.digits(16));
            let credit = if draw.percent(10) { "BC" } else { "GC" };
            let discount = share(draw.between(0, 5_000));
            let data = draw.letters((300, 500));
            line(
                rows,
                format_args!(
                    "{id}\t{district}\t{own}\t{first}\tOE\t{last}\t{address}\t{phone}\t{ENTERED}\t\
                     {credit}\t50000.00\t{discount}\t-10.00\t10.00\t1\t0\t{data}"
                ),
            );
        })
    }

    fn history<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut draw = self.draw(4);
        pieces(0..=DISTRICTS * CUSTOMERS - 1, sink, |rows, index| {
            let (district, id, own) = (index / CUSTOMERS + 1, index % CUSTOMERS + 1, self.id);
            let text = draw.letters((12, 24));
            line(
                rows,
                format_args!(
                    "{id}\t{district}\t{own}\t{district}\t{own}\t{ENTERED}\t10.00\t{text}"
                ),
            );
        })
    }

    fn stock<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut draw = self.draw(5);
        pieces(1..=ITEMS, sink, |rows, item| {
            let quantity = draw.between(10, 100);
            let infos: Vec<String> = (0..DISTRICTS).map(|_| draw.letters((24, 24))).collect();
            let (own, infos, data) = (self.id, infos.join("\t"), draw.data_of_item());
            line(rows, format_args!("{item}\t{own}\t{quantity}\t{infos}\t0\t0\t0\t{data}"));
        })
    }

    /// Returns all orders of the warehouse: one per customer of each district.
    fn all_orders(&self) -> Vec<Order> {
        let mut draw = self.draw(6);
        let mut orders = Vec::new();
        for district in 1..=DISTRICTS {
            for (id, customer) in (1..).zip(draw.permutation(CUSTOMERS)) {
                orders.push(Order { district, id, customer, line_count: draw.between(5, 15) });
            }
        }
        orders
    }

    fn orders<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut draw = self.draw(7);
        pieces(self.all_orders(), sink, |rows, order| {
            let Order { district, id, customer, line_count } = order;
            let carrier = match id < FIRST_OPEN_ORDER {
                true => draw.between(1, 10).to_string(),
                false => "\\N".to_owned(),
            };
            let own = self.id;
            line(
                rows,
                format_args!(
                    "{id}\t{district}\t{own}\t{customer}\t{ENTERED}\t{carrier}\t{line_count}\t1"
                ),
            );
        })
    }

    fn new_orders<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let open = (1..=DISTRICTS)
            .flat_map(|district| (FIRST_OPEN_ORDER..=CUSTOMERS).map(move |id| (district, id)));
        pieces(open, sink, |rows, (district, id)| {
            line(rows, format_args!("{id}\t{district}\t{}", self.id));
        })
    }

    fn order_lines<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut draw = self.draw(8);
        let lines = self.all_orders().into_iter().flat_map(|order| {
            (1..=order.line_count).map(move |number| (order.district, order.id, number))
        });
        pieces(lines, sink, |rows, (district, id, number)| {
            let item = draw.between(1, ITEMS);
            let (delivered, amount) = match id < FIRST_OPEN_ORDER {
                true => (ENTERED, "0.00".to_owned()),
                false => ("\\N", money(draw.between(1, 999_999))),
            };
            let (own, info) = (self.id, draw.letters((24, 24)));
            line(
                rows,
                format_args!(
                    "{id}\t{district}\t{own}\t{number}\t{item}\t{own}\t{delivered}\t5\t{amount}\t\
                     {info}"
                ),
            );
        })
    }
}

fn pieces<S: Sink, Key>(
    keys: impl IntoIterator<Item = Key>,
    sink: &mut S,
    mut row: impl FnMut(&mut String, Key),
) -> Result<(), S::Error> {
    let mut rows = String::new();
    let mut count = 0;
    for key in keys {
        row(&mut rows, key);
        count += 1;
        if count == PIECE_ROWS {
            sink.take(&mut rows)?;
            rows.clear();
            count = 0;
        }
    }
    sink.take(&mut rows)
}

fn line(rows: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(rows, "{text}").expect("text grows");
}

/// Returns two streets, city, state and zip code.
fn address(draw: &mut Draw) -> String {
    let (one, two, city) = (draw.letters((10, 20)), draw.letters((10, 20)), draw.letters((10, 20)));
    let state = draw.letters((2, 2));
    format!("{one}\t{two}\t{city}\t{state}\t{}", draw.zip())
}

fn tax(draw: &mut Draw) -> String {
    share(draw.between(0, 2_000))
}

/// Formats a number of ten-thousandths.
fn share(of_ten_thousand: u32) -> String {
    format!("0.{of_ten_thousand:04}")
}

pub(super) fn money(cents: u32) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use super::*;

    #[derive(Default)]
    struct Text(String);

    impl Sink for Text {
        type Error = Infallible;

        fn take(&mut self, rows: &mut String) -> Result<(), Infallible> {
            self.0.push_str(rows);
            Ok(())
        }
    }

    fn rows_of(table: &str) -> Vec<Vec<String>> {
        let mut text = Text::default();
        let done = match table {
            "item" => items(4, &mut text),
            _ => Warehouse { id: 2, seed: 4 }.rows(table, &mut text),
        };
        let Ok(()) = done;
        text.0.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn tables_have_the_cardinalities_of_the_specification() {
        for (table, count) in [
            ("warehouse", 1),
            ("district", 10),
            ("customer", 30_000),
            ("history", 30_000),
            ("stock", 100_000),
            ("orders", 30_000),
            ("new_order", 9_000),
            ("item", 100_000),
        ] {
            assert_eq!(rows_of(table).len(), count, "{table}");
        }
        let lines = rows_of("order_line").len();
        assert!((297_000..303_000).contains(&lines), "{lines} order lines, about 300,000 expected");
        assert_eq!(row_count(2), 2 * 499_011 + 100_000);
    }

    #[test]
    fn orders_have_as_many_lines_as_they_say_and_each_customer_one() {
        let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
        for row in rows_of("order_line") {
            *counts.entry((row[1].clone(), row[0].clone())).or_default() += 1;
        }
        let mut customers = std::collections::BTreeSet::new();
        for row in rows_of("orders") {
            let key = (row[1].clone(), row[0].clone());
            assert_eq!(counts[&key].to_string(), row[6]);
            assert_eq!(row[5] == "\\N", row[0].parse::<u32>().expect("a number") > 2_100);
            assert!(customers.insert((row[1].clone(), row[3].clone())), "{row:?}");
        }
    }

    #[test]
    fn every_last_name_is_in_every_district_and_a_tenth_has_bad_credit() {
        let rows = rows_of("customer");
        let names: std::collections::BTreeSet<(&str, &str)> =
            rows.iter().map(|row| (&*row[1], &*row[5])).collect();
        assert_eq!(names.len(), 10_000);
        let bad = rows.iter().filter(|row| row.iter().any(|field| field == "BC")).count();
        assert!((2_800..3_200).contains(&bad), "{bad} of 30000");
        assert!(rows.iter().all(|row| row.len() == 21));
    }

    #[test]
    fn sums_begin_equal() {
        assert_eq!(rows_of("warehouse")[0].last().map(String::as_str), Some("300000.00"));
        let districts = rows_of("district");
        assert!(districts.iter().all(|row| row[9] == "30000.00" && row[10] == "3001"));
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_and_another_warehouse_others() {
        assert_eq!(rows_of("stock")[..50], rows_of("stock")[..50]);
        let mut other = Text::default();
        let Ok(()) = Warehouse { id: 3, seed: 4 }.rows("history", &mut other);
        let own: Vec<String> = rows_of("history").into_iter().map(|row| row[7].clone()).collect();
        assert_ne!(other.0.lines().next().and_then(|line| line.split('\t').nth(7)), Some(&*own[0]));
    }
}
