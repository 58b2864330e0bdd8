//! The five transactions as individual statements, in SQL that MariaDB and SQLite understand.
//!
//! Money is in whole cents here. In a statement's text `?` is a parameter, `$hundred` is the
//! divisor of cents for databases with decimals, and `$lock` marks a row that is read for update.

use anyhow::{Context, Result, ensure};

use super::database::{Done, End, RETRIES_MAX, Session};
use super::draw::DISTRICTS;
use super::input::{Customer, Input, Kind, Line};
use super::rows::money;

/// Maximum integer value of a decimal. All integers below are exact.
const WHOLE_MAX: f64 = 9e15;

/// Value of a statement's parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'input> {
    Number(i64),
    Text(&'input str),
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Number(i64::from(number))
    }
}

/// A field of a result row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Nothing,
    Number(i64),
    Real(f64),
    /// Text, including decimals.
    Text(String),
}

impl Cell {
    pub(super) fn real(&self) -> Result<f64> {
        match self {
            Self::Number(number) => Ok(*number as f64),
            Self::Real(real) => Ok(*real),
            Self::Text(text) => text.parse().with_context(|| format!("{text:?} is not a number")),
            Self::Nothing => anyhow::bail!("NULL instead of a number"),
        }
    }

    /// Returns an integer from any representation.
    pub(super) fn whole(&self) -> Result<i64> {
        match self {
            Self::Number(number) => Ok(*number),
            other => {
                let real = other.real()?.round();
                ensure!(real.abs() < WHOLE_MAX, "{real} is no number of the workload");
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and not large")]
                Ok(real as i64)
            }
        }
    }

    fn text(&self) -> Result<&str> {
        match self {
            Self::Text(text) => Ok(text),
            other => anyhow::bail!("{other:?} is no text"),
        }
    }
}

/// Statements, in the order of [`TEXTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    CustomerAndTax,
    NextOrder,
    CountOrder,
    AddOrder,
    AddNewOrder,
    Price,
    Stock,
    TakeStock,
    AddLine,
    PayWarehouse,
    WarehouseName,
    PayDistrict,
    DistrictName,
    CustomerByName,
    PayCustomer,
    AddHistory,
    Customer,
    LastOrder,
    Lines,
    OldestNewOrder,
    TakeNewOrder,
    CarryOrder,
    OrderingCustomer,
    DeliverLines,
    AmountOfLines,
    CreditCustomer,
    DistrictNext,
    LowStock,
}

impl Statement {
    pub(super) const COUNT: usize = Self::LowStock as usize + 1;
}

const TEXTS: [&str; Statement::COUNT] = [
    "SELECT c_discount, w_tax FROM warehouse, customer
        WHERE w_id = ? AND c_w_id = w_id AND c_d_id = ? AND c_id = ?",
    "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? $lock",
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?",
    "INSERT INTO orders VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP, NULL, ?, ?)",
    "INSERT INTO new_order VALUES (?, ?, ?)",
    "SELECT i_price * $hundred, i_name, i_data FROM item WHERE i_id = ?",
    "SELECT s_quantity, s_data, CASE ? WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02
            WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05
            WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
            WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
        FROM stock WHERE s_w_id = ? AND s_i_id = ? $lock",
    "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1,
        s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
    "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ? / $hundred, ?)",
    "UPDATE warehouse SET w_ytd = w_ytd + ? / $hundred WHERE w_id = ?",
    "SELECT w_name FROM warehouse WHERE w_id = ?",
    "UPDATE district SET d_ytd = d_ytd + ? / $hundred WHERE d_w_id = ? AND d_id = ?",
    "SELECT d_name FROM district WHERE d_w_id = ? AND d_id = ?",
    "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
    "UPDATE customer SET c_balance = c_balance - ? / $hundred,
        c_ytd_payment = c_ytd_payment + ? / $hundred, c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC'
            THEN substr(concat_ws(' ', c_id, c_d_id, c_w_id, ?, ?, ?, c_data), 1, 500)
            ELSE c_data END
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    "INSERT INTO history VALUES (?, ?, ?, ?, ?, CURRENT_TIMESTAMP, ? / $hundred, ?)",
    "SELECT c_balance * $hundred, c_first, c_middle, c_last FROM customer
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    "SELECT o_id, CAST(o_entry_d AS CHAR), o_carrier_id FROM orders
        WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount * $hundred,
        CAST(ol_delivery_d AS CHAR)
        FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ?
        ORDER BY no_o_id LIMIT 1 $lock",
    "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
    "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
    "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
    "UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    "SELECT sum(ol_amount) * $hundred FROM order_line
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    "UPDATE customer SET c_balance = c_balance + ? / $hundred, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?",
    "SELECT count(DISTINCT s_i_id) FROM order_line, stock
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? - 20 AND ol_o_id < ?
        AND s_w_id = ol_w_id AND s_i_id = ol_i_id AND s_quantity < ?",
];

/// Differences in spelling between databases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    pub(super) hundred: &'static str,
    pub(super) lock: &'static str,
}

/// Returns all statements in the database's spelling, in the order of [`Statement`].
pub(super) fn texts(dialect: Dialect) -> impl Iterator<Item = String> {
    let spell = move |text: &str| {
        text.replace("$hundred", dialect.hundred).replace("$lock", dialect.lock).trim().to_owned()
    };
    TEXTS.into_iter().map(spell)
}

/// Access mode of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    Read,
    Change,
}

/// A connection that has prepared [`texts`].
pub(super) trait Statements: Send {
    fn begin(&mut self, intent: Intent) -> Result<()>;
    fn commit(&mut self) -> Result<()>;
    fn roll_back(&mut self) -> Result<()>;

    /// Executes a statement and returns all rows.
    fn rows(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<Vec<Vec<Cell>>>;

    /// Returns whether the database aborted a transaction because of a conflict.
    fn is_conflict(error: &anyhow::Error) -> bool;
}

/// A virtual user on such a connection.
pub(super) struct PlainSession<S>(pub(super) S);

impl<S: Statements> Session for PlainSession<S> {
    fn run(&mut self, warehouse: i32, input: &Input) -> Result<Done> {
        let mut work = Work { statements: &mut self.0, warehouse };
        for retries in 0..=RETRIES_MAX {
            match work.in_transaction(input) {
                Ok(end) => return Ok(Done { end, retries }),
                Err(error) if S::is_conflict(&error) && retries < RETRIES_MAX => {}
                Err(error) => {
                    let name = input.kind().name();
                    return Err(error).with_context(|| format!("a transaction {name} failed"));
                }
            }
        }
        unreachable!("the last try returns")
    }
}

/// A transaction in progress.
struct Work<'session, S> {
    statements: &'session mut S,
    warehouse: i32,
}

impl<S: Statements> Work<'_, S> {
    fn rows(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<Vec<Vec<Cell>>> {
        self.statements.rows(statement, values)
    }

    fn one(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<Vec<Cell>> {
        let mut rows = self.rows(statement, values)?;
        rows.pop().with_context(|| format!("{statement:?} returned no row"))
    }

    fn change(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<()> {
        self.rows(statement, values).map(|_| ())
    }

    /// Runs a transaction. Rolls back after an error.
    fn in_transaction(&mut self, input: &Input) -> Result<End> {
        let intent = match input.kind() {
            Kind::OrderStatus | Kind::StockLevel => Intent::Read,
            Kind::NewOrder | Kind::Payment | Kind::Delivery => Intent::Change,
        };
        self.statements.begin(intent)?;
        let done = match input {
            Input::NewOrder { district, customer, lines } => {
                self.new_order(*district, *customer, lines)
            }
            Input::Payment { district, of, customer, cents } => {
                self.payment(*district, *of, customer, *cents)
            }
            Input::OrderStatus { district, customer } => self.order_status(*district, customer),
            Input::Delivery { carrier } => self.delivery(*carrier),
            Input::StockLevel { district, threshold } => self.stock_level(*district, *threshold),
        };
        let ended = match &done {
            Ok(End::Committed) => self.statements.commit(),
            Ok(End::RolledBack) => self.statements.roll_back(),
            Err(_) => {
                // A transaction that has already ended cannot be rolled back and need not be.
                let _ = self.statements.roll_back();
                Ok(())
            }
        };
        if ended.is_err() {
            // As above.
            let _ = self.statements.roll_back();
        }
        ended.and(done)
    }

    fn new_order(&mut self, district: i32, customer: i32, lines: &[Line]) -> Result<End> {
        let own = self.warehouse;
        let place = [own.into(), district.into()];
        let key = [own.into(), district.into(), customer.into()];
        let known = self.one(Statement::CustomerAndTax, &key)?;
        let next = self.one(Statement::NextOrder, &place)?;
        let order = Value::Number(next[0].whole()?);
        self.change(Statement::CountOrder, &place)?;
        let is_local = lines.iter().all(|line| line.supply_warehouse == own);
        let count = Value::Number(lines.len() as i64);
        let row = [
            order,
            district.into(),
            own.into(),
            customer.into(),
            count,
            i32::from(is_local).into(),
        ];
        self.change(Statement::AddOrder, &row)?;
        self.change(Statement::AddNewOrder, &[order, district.into(), own.into()])?;
        let mut cents = 0;
        for (number, line) in (1_i32..).zip(lines) {
            let item = self.rows(Statement::Price, &[line.item.into()])?.pop();
            let Some(item) = item else { return Ok(End::RolledBack) };
            let amount = item[0].whole()? * i64::from(line.quantity);
            let info = self.take_stock(line, district)?;
            let row = [
                order,
                district.into(),
                own.into(),
                number.into(),
                line.item.into(),
                line.supply_warehouse.into(),
                line.quantity.into(),
                Value::Number(amount),
                Value::Text(&info),
            ];
            self.change(Statement::AddLine, &row)?;
            cents += amount;
        }
        let taxes = 1.0 + known[1].real()? + next[1].real()?;
        // Computes what the user's screen would show.
        std::hint::black_box(cents as f64 / 100.0 * (1.0 - known[0].real()?) * taxes);
        Ok(End::Committed)
    }

    /// Updates the stock of a line. Returns the district's information.
    fn take_stock(&mut self, line: &Line, district: i32) -> Result<String> {
        let (supply, item) = (line.supply_warehouse.into(), line.item.into());
        let mut stock = self.one(Statement::Stock, &[district.into(), supply, item])?;
        let (there, taken) = (stock[0].whole()?, i64::from(line.quantity));
        let left = if there >= taken + 10 { there - taken } else { there - taken + 91 };
        let is_remote = i32::from(line.supply_warehouse != self.warehouse).into();
        let values = [Value::Number(left), line.quantity.into(), is_remote, supply, item];
        self.change(Statement::TakeStock, &values)?;
        match stock.swap_remove(2) {
            Cell::Text(info) => Ok(info),
            other => anyhow::bail!("the stock says {other:?}"),
        }
    }

    /// Returns the customer's number. Among several of the same name, the middle one, clause
    /// 2.5.2.2.
    fn customer(&mut self, place: (i32, i32), customer: &Customer) -> Result<Value<'static>> {
        match customer {
            Customer::Id(id) => Ok((*id).into()),
            Customer::LastName(name) => {
                let key = [place.0.into(), place.1.into(), Value::Text(name)];
                let named = self.rows(Statement::CustomerByName, &key)?;
                let middle = named.len().div_ceil(2).saturating_sub(1);
                let row = named
                    .get(middle)
                    .with_context(|| format!("no customer has the last name {name}"))?;
                Ok(Value::Number(row[0].whole()?))
            }
        }
    }

    fn payment(
        &mut self,
        district: i32,
        of: (i32, i32),
        customer: &Customer,
        cents: u32,
    ) -> Result<End> {
        let (own, district): (Value<'_>, Value<'_>) = (self.warehouse.into(), district.into());
        let amount = Value::Number(i64::from(cents));
        self.change(Statement::PayWarehouse, &[amount, own])?;
        let warehouse = self.one(Statement::WarehouseName, &[own])?;
        self.change(Statement::PayDistrict, &[amount, own, district])?;
        let paid = self.one(Statement::DistrictName, &[own, district])?;
        let id = self.customer(of, customer)?;
        let text = money(cents);
        let key = [of.0.into(), of.1.into(), id];
        let values = [amount, amount, district, own, Value::Text(&text), key[0], key[1], key[2]];
        self.change(Statement::PayCustomer, &values)?;
        self.one(Statement::Customer, &key)?;
        let text = format!("{}    {}", warehouse[0].text()?, paid[0].text()?);
        let row = [id, key[1], key[0], district, own, amount, Value::Text(&text)];
        self.change(Statement::AddHistory, &row)?;
        Ok(End::Committed)
    }

    fn order_status(&mut self, district: i32, customer: &Customer) -> Result<End> {
        let id = self.customer((self.warehouse, district), customer)?;
        let (own, district) = (self.warehouse.into(), district.into());
        self.one(Statement::Customer, &[own, district, id])?;
        let last = self.one(Statement::LastOrder, &[own, district, id])?;
        let order = Value::Number(last[0].whole()?);
        self.rows(Statement::Lines, &[own, district, order])?;
        Ok(End::Committed)
    }

    fn delivery(&mut self, carrier: i32) -> Result<End> {
        let own = Value::from(self.warehouse);
        for district in 1..=i64::from(DISTRICTS) {
            let district = Value::Number(district);
            let Some(order) = self.oldest(district)? else { continue };
            let key = [own, district, order];
            self.change(Statement::CarryOrder, &[carrier.into(), own, district, order])?;
            let ordering = self.one(Statement::OrderingCustomer, &key)?[0].whole()?;
            self.change(Statement::DeliverLines, &key)?;
            let amounts = self.one(Statement::AmountOfLines, &key)?[0].whole()?;
            let values = [Value::Number(amounts), own, district, Value::Number(ordering)];
            self.change(Statement::CreditCustomer, &values)?;
        }
        Ok(End::Committed)
    }

    /// Removes the oldest new order of a district. Its row is locked once found, so that no other
    /// transaction takes it.
    fn oldest(&mut self, district: Value<'static>) -> Result<Option<Value<'static>>> {
        let own = Value::from(self.warehouse);
        let found = self.rows(Statement::OldestNewOrder, &[own, district])?.pop();
        let Some(found) = found else { return Ok(None) };
        let order = Value::Number(found[0].whole()?);
        self.change(Statement::TakeNewOrder, &[own, district, order])?;
        Ok(Some(order))
    }

    fn stock_level(&mut self, district: i32, threshold: i32) -> Result<End> {
        let (own, district) = (Value::from(self.warehouse), Value::from(district));
        let next = self.one(Statement::DistrictNext, &[own, district])?[0].whole()?;
        let next = Value::Number(next);
        self.one(Statement::LowStock, &[own, district, next, next, threshold.into()])?;
        Ok(End::Committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_spelt_for_their_database() {
        let spelt = |hundred, lock| texts(Dialect { hundred, lock }).collect::<Vec<_>>();
        let (one, other) = (spelt("100", "FOR UPDATE"), spelt("1", ""));
        assert_eq!(one.len(), Statement::COUNT);
        assert!(one[Statement::NextOrder as usize].ends_with("FOR UPDATE"));
        assert!(other[Statement::NextOrder as usize].ends_with("d_id = ?"));
        assert!(one[Statement::AddLine as usize].contains("? / 100,"));
        assert!(one.iter().chain(&other).all(|text| !text.contains('$')));
    }

    #[test]
    fn decimals_are_whole_cents() {
        let whole = |text: &str| Cell::Text(text.to_owned()).whole().ok();
        assert_eq!([whole("1234.00"), whole("-7"), whole("x")], [Some(1_234), Some(-7), None]);
        assert_eq!(Cell::Real(12.0).whole().ok(), Some(12));
        assert!(Cell::Nothing.whole().is_err());
    }
}
