//! Requests of virtual users: transaction mix and inputs, by clauses 2.4.1 to 2.8.1 of the TPC-C
//! specification.

use serde::Serialize;

use super::draw::{Constants, DISTRICTS, Draw, ITEMS, last_name};

pub(super) const LINES_MIN: u32 = 5;
pub(super) const LINES_MAX: u32 = 15;
/// Percentage of new orders with an invalid item, which are rolled back.
pub(super) const ROLLED_BACK_PERCENT: u32 = 1;
pub(super) const REMOTE_LINE_PERCENT: u32 = 1;
pub(super) const REMOTE_PAYMENT_PERCENT: u32 = 15;
pub(super) const BY_NAME_PERCENT: u32 = 60;

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    /// Returns the name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
        }
    }

    /// Returns the keying time and the mean thinking time in seconds, clause 5.2.5.7.
    pub(super) fn keying_and_thinking_s(self) -> (f64, f64) {
        match self {
            Self::NewOrder => (18.0, 12.0),
            Self::Payment => (3.0, 12.0),
            Self::OrderStatus => (2.0, 10.0),
            Self::Delivery => (2.0, 5.0),
            Self::StockLevel => (2.0, 5.0),
        }
    }
}

/// Frequency of each transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mix {
    /// 10, 10, 1, 1 and 1 of 23, as in HammerDB
    Hammerdb,
    /// 45, 43, 4, 4 and 4 of 100, the minimum shares of the specification
    Spec,
}

impl Mix {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hammerdb => "hammerdb",
            Self::Spec => "spec",
        }
    }

    /// Returns the weights in the order of [`Kind::ALL`].
    pub(super) fn weights(self) -> [u32; 5] {
        match self {
            Self::Hammerdb => [10, 10, 1, 1, 1],
            Self::Spec => [45, 43, 4, 4, 4],
        }
    }

    fn draw(self, draw: &mut Draw) -> Kind {
        let weights = self.weights();
        let mut left = draw.between(1, weights.iter().sum());
        for (kind, weight) in Kind::ALL.into_iter().zip(weights) {
            if left <= weight {
                return kind;
            }
            left -= weight;
        }
        unreachable!("what is drawn is not above the sum of the weights")
    }
}

/// A customer, identified as by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Customer {
    Id(i32),
    LastName(String),
}

/// A line of a new order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(super) item: i32,
    pub(super) supply_warehouse: i32,
    pub(super) quantity: i32,
}

/// A transaction with its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    NewOrder { district: i32, customer: i32, lines: Vec<Line> },
    Payment { district: i32, of: (i32, i32), customer: Customer, cents: u32 },
    OrderStatus { district: i32, customer: Customer },
    Delivery { carrier: i32 },
    StockLevel { district: i32, threshold: i32 },
}

impl Input {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::NewOrder { .. } => Kind::NewOrder,
            Self::Payment { .. } => Kind::Payment,
            Self::OrderStatus { .. } => Kind::OrderStatus,
            Self::Delivery { .. } => Kind::Delivery,
            Self::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// A virtual user: a terminal with its home warehouse and, for stock levels, its district.
pub(super) struct User {
    pub(super) warehouse: i32,
    district: i32,
    warehouses: u32,
    mix: Mix,
    constants: Constants,
    draw: Draw,
}

impl User {
    /// Creates user `number`, from 0. Users are assigned to warehouses round-robin.
    pub(super) fn new(number: u32, warehouses: u32, mix: Mix, constants: Constants) -> Self {
        Self {
            warehouse: signed(number % warehouses + 1),
            district: signed(number / warehouses % DISTRICTS + 1),
            warehouses,
            mix,
            constants,
            draw: Draw::new(0),
        }
    }

    /// Replaces the random sequence by that of this seed.
    pub(super) fn seeded(self, seed: u64) -> Self {
        Self { draw: Draw::new(seed), ..self }
    }

    pub(super) fn next(&mut self) -> Input {
        match self.mix.draw(&mut self.draw) {
            Kind::NewOrder => self.new_order(),
            Kind::Payment => self.payment(),
            Kind::OrderStatus => {
                let district = self.any_district();
                Input::OrderStatus { district, customer: self.customer() }
            }
            Kind::Delivery => Input::Delivery { carrier: signed(self.draw.between(1, 10)) },
            Kind::StockLevel => {
                let threshold = signed(self.draw.between(10, 20));
                Input::StockLevel { district: self.district, threshold }
            }
        }
    }

    /// Returns the thinking time after a transaction in seconds: exponential, limited to ten times
    /// the mean.
    pub(super) fn thinking_s(&mut self, kind: Kind) -> f64 {
        let (_, mean) = kind.keying_and_thinking_s();
        (-self.draw.share().ln() * mean).min(10.0 * mean)
    }

    fn any_district(&mut self) -> i32 {
        signed(self.draw.between(1, DISTRICTS))
    }

    /// Returns a warehouse other than the home, if there is one.
    fn remote_warehouse(&mut self) -> i32 {
        if self.warehouses == 1 {
            return self.warehouse;
        }
        let other = signed(self.draw.between(1, self.warehouses - 1));
        if other >= self.warehouse { other + 1 } else { other }
    }

    fn customer(&mut self) -> Customer {
        if self.draw.percent(BY_NAME_PERCENT) {
            let number = self.draw.last_name_number(self.constants.last_name_at_run);
            return Customer::LastName(last_name(number));
        }
        Customer::Id(signed(self.draw.customer(&self.constants)))
    }

    fn new_order(&mut self) -> Input {
        let district = self.any_district();
        let customer = signed(self.draw.customer(&self.constants));
        let count = self.draw.between(LINES_MIN, LINES_MAX);
        let is_rolled_back = self.draw.percent(ROLLED_BACK_PERCENT);
        let mut lines: Vec<Line> = (0..count).map(|_| self.line()).collect();
        if is_rolled_back {
            lines.last_mut().expect("there are five at least").item = signed(ITEMS + 1);
        }
        // All users lock rows in the same order, which avoids deadlocks.
        lines.sort_unstable_by_key(|line| (line.item, line.supply_warehouse));
        Input::NewOrder { district, customer, lines }
    }

    fn line(&mut self) -> Line {
        let item = signed(self.draw.item(&self.constants));
        let is_remote = self.draw.percent(REMOTE_LINE_PERCENT);
        let supply_warehouse = if is_remote { self.remote_warehouse() } else { self.warehouse };
        Line { item, supply_warehouse, quantity: signed(self.draw.between(1, 10)) }
    }

    fn payment(&mut self) -> Input {
        let district = self.any_district();
        let is_remote = self.warehouses > 1 && self.draw.percent(REMOTE_PAYMENT_PERCENT);
        let of = match is_remote {
            true => (self.remote_warehouse(), self.any_district()),
            false => (self.warehouse, district),
        };
        let customer = self.customer();
        Input::Payment { district, of, customer, cents: self.draw.between(100, 500_000) }
    }
}

/// Converts a number of the workload, which is always small.
fn signed(number: u32) -> i32 {
    i32::try_from(number).expect("numbers of the workload are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(warehouses: u32, mix: Mix, count: usize) -> Vec<Input> {
        let user = User::new(0, warehouses, mix, Constants::new(1));
        let mut user = user.seeded(2);
        (0..count).map(|_| user.next()).collect()
    }

    fn share(inputs: &[Input], is_counted: impl Fn(&&Input) -> bool) -> f64 {
        inputs.iter().filter(is_counted).count() as f64 / inputs.len() as f64
    }

    #[test]
    fn mixes_have_their_shares() {
        for mix in [Mix::Hammerdb, Mix::Spec] {
            let drawn = inputs(1, mix, 100_000);
            let all: u32 = mix.weights().iter().sum();
            for (kind, weight) in Kind::ALL.into_iter().zip(mix.weights()) {
                let found = share(&drawn, |input| input.kind() == kind);
                let expected = f64::from(weight) / f64::from(all);
                assert!((found - expected).abs() < 0.01, "{kind:?}: {found} for {expected}");
            }
        }
    }

    #[test]
    fn orders_are_as_the_specification_wants_them() {
        let drawn = inputs(10, Mix::Spec, 60_000);
        let orders: Vec<&Vec<Line>> = drawn
            .iter()
            .filter_map(|input| match input {
                Input::NewOrder { lines, .. } => Some(lines),
                _ => None,
            })
            .collect();
        let lines: Vec<&Line> = orders.iter().copied().flatten().collect();
        let mean = lines.len() as f64 / orders.len() as f64;
        assert!((mean - 10.0).abs() < 0.1, "{mean} lines");
        assert!(orders.iter().all(|lines| (5..=15).contains(&lines.len())));
        let absent = orders.iter().filter(|lines| lines.iter().any(|it| it.item > 100_000));
        let absent = absent.count() as f64 / orders.len() as f64;
        assert!((absent - 0.01).abs() < 0.003, "{absent} are rolled back");
        let remote = lines.iter().filter(|line| line.supply_warehouse != 1).count();
        let remote = remote as f64 / lines.len() as f64;
        assert!((remote - 0.01).abs() < 0.002, "{remote} are remote");
        assert!(lines.iter().all(|line| (1..=10).contains(&line.supply_warehouse)));
        assert!(lines.iter().all(|line| (1..=10).contains(&line.quantity)));
    }

    #[test]
    fn payments_are_remote_and_by_name_as_often_as_they_should() {
        let drawn = inputs(10, Mix::Spec, 60_000);
        let payments: Vec<Input> =
            drawn.into_iter().filter(|input| input.kind() == Kind::Payment).collect();
        let remote =
            share(&payments, |it| matches!(it, Input::Payment { of: (home, _), .. } if *home != 1));
        assert!((remote - 0.15).abs() < 0.01, "{remote}");
        let named = share(&payments, |it| {
            matches!(it, Input::Payment { customer: Customer::LastName(_), .. })
        });
        assert!((named - 0.6).abs() < 0.02, "{named}");
    }

    #[test]
    fn one_warehouse_has_no_remote_ones() {
        for input in inputs(1, Mix::Hammerdb, 20_000) {
            match input {
                Input::NewOrder { lines, .. } => {
                    assert!(lines.iter().all(|line| line.supply_warehouse == 1));
                }
                Input::Payment { of, district, .. } => assert_eq!(of, (1, district)),
                _ => {}
            }
        }
    }

    #[test]
    fn the_same_seed_asks_for_the_same() {
        assert_eq!(inputs(3, Mix::Spec, 500), inputs(3, Mix::Spec, 500));
    }
}
