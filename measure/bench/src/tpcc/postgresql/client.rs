//! The five transactions on PostgreSQL, as individual statements or stored procedures.
//!
//! Statements are prepared at the start of a session. Transactions aborted by a deadlock are
//! retried.

use anyhow::{Context, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::connection::Connection;
use crate::tpcc::database::{Done, End, RETRIES_MAX, STATEMENT_SECONDS_MAX, Session, Way};
use crate::tpcc::draw::DISTRICTS;
use crate::tpcc::input::{Customer, Input, Line};
use crate::tpcc::rows::money;

/// Maximum number of attempts of a delivery to find an oldest new order that no other one has
/// taken.
const DELIVERY_ATTEMPTS_MAX: u32 = 10;

/// A virtual user's connection.
pub(super) struct User {
    connection: Connection,
    statements: Statements,
    way: Way,
}

impl User {
    pub(super) fn new(connection: Connection, way: Way) -> Result<Self> {
        connection.batch(&format!("SET statement_timeout = '{STATEMENT_SECONDS_MAX}s'"))?;
        let prepared = connection.wait(Statements::prepare(connection.client()));
        let statements = prepared.context("cannot prepare the statements")?;
        Ok(Self { connection, statements, way })
    }
}

impl Session for User {
    fn run(&mut self, warehouse: i32, input: &Input) -> Result<Done> {
        let client = self.connection.client();
        let work = Work { client, statements: &self.statements, warehouse };
        for retries in 0..=RETRIES_MAX {
            let done = self.connection.wait(async {
                match self.way {
                    Way::Statements => work.in_transaction(input).await,
                    Way::Procedures => work.call(input).await,
                }
            });
            match done {
                Ok(end) => return Ok(Done { end, retries }),
                Err(error) if is_worth_retrying(&error) && retries < RETRIES_MAX => {}
                Err(error) => {
                    let name = input.kind().name();
                    return Err(error).with_context(|| format!("a transaction {name} failed"));
                }
            }
        }
        unreachable!("the last try returns")
    }
}

fn is_worth_retrying(error: &Error) -> bool {
    let again = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    error.code().is_some_and(|code| again.contains(code))
}

macro_rules! statements {
    ($($name:ident: $text:expr,)*) => {
        struct Statements {
            $($name: Statement,)*
        }

        impl Statements {
            async fn prepare(client: &Client) -> Result<Self, Error> {
                Ok(Self { $($name: client.prepare($text).await?,)* })
            }
        }
    };
}

statements! {
    call_new_order: "CALL tpcc_new_order($1, $2, $3, $4, $5, $6, $7, NULL)",
    call_payment: "CALL tpcc_payment($1, $2, $3, $4, $5, $6, $7::text::numeric, NULL)",
    call_order_status: "CALL tpcc_order_status($1, $2, $3, $4, NULL)",
    call_delivery: "CALL tpcc_delivery($1, $2, NULL)",
    call_stock_level: "CALL tpcc_stock_level($1, $2, $3, NULL)",
    customer_and_tax: "SELECT c_discount::float8, w_tax::float8 FROM customer, warehouse
        WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
    next_order: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2
        RETURNING d_next_o_id - 1, d_tax::float8",
    add_order: "INSERT INTO orders VALUES ($1, $2, $3, $4, now(), NULL, $5, $6)",
    add_new_order: "INSERT INTO new_order VALUES ($1, $2, $3)",
    price: "SELECT (i_price * 100)::int, i_name, i_data FROM item WHERE i_id = $1",
    take_stock: "UPDATE stock SET
        s_quantity = s_quantity - $3 + CASE WHEN s_quantity >= $3 + 10 THEN 0 ELSE 91 END,
        s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $4
        WHERE s_w_id = $1 AND s_i_id = $2
        RETURNING (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06,
            s_dist_07, s_dist_08, s_dist_09, s_dist_10])[$5::int]::text, s_data",
    add_line: "INSERT INTO order_line VALUES ($1, $2, $3, $4, $5, $6, NULL, $7,
        $8::text::numeric, $9::text)",
    pay_warehouse: "UPDATE warehouse SET w_ytd = w_ytd + $2::text::numeric WHERE w_id = $1
        RETURNING w_name",
    pay_district: "UPDATE district SET d_ytd = d_ytd + $3::text::numeric
        WHERE d_w_id = $1 AND d_id = $2 RETURNING d_name",
    customer_by_name: "SELECT c_id FROM customer
        WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3::text ORDER BY c_first",
    pay_customer: "UPDATE customer SET c_balance = c_balance - $4::text::numeric,
        c_ytd_payment = c_ytd_payment + $4::text::numeric, c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC'
            THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, $5::int, $6::int, $4::text, c_data), 500)
            ELSE c_data END
        WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 RETURNING c_balance::text",
    add_history: "INSERT INTO history VALUES ($1, $2, $3, $4, $5, now(), $6::text::numeric,
        $7::text)",
    customer: "SELECT c_balance::text, c_first, c_middle::text, c_last FROM customer
        WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    last_order: "SELECT o_id, o_entry_d::text, o_carrier_id FROM orders
        WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
    lines: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount::text, ol_delivery_d::text
        FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    oldest_new_order: "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2
        AND no_o_id = (SELECT min(no_o_id) FROM new_order WHERE no_w_id = $1 AND no_d_id = $2)
        RETURNING no_o_id",
    any_new_order: "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 LIMIT 1",
    carry_order: "UPDATE orders SET o_carrier_id = $4
        WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
    deliver_lines: "WITH lines AS (UPDATE order_line SET ol_delivery_d = now()
            WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3 RETURNING ol_amount)
        SELECT sum(ol_amount)::text FROM lines",
    credit_customer: "UPDATE customer SET c_balance = c_balance + $4::text::numeric,
        c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    district_next: "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
    low_stock: "SELECT count(DISTINCT s_i_id) FROM order_line, stock
        WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 - 20 AND ol_o_id < $3
        AND s_w_id = ol_w_id AND s_i_id = ol_i_id AND s_quantity < $4",
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A transaction in progress.
struct Work<'session> {
    client: &'session Client,
    statements: &'session Statements,
    warehouse: i32,
}

impl Work<'_> {
    async fn one(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<Row, Error> {
        self.client.query_one(statement, parameters).await
    }

    async fn change(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<(), Error> {
        self.client.execute(statement, parameters).await.map(|_| ())
    }

    /// Calls a procedure. A rollback returns null.
    async fn call(&self, input: &Input) -> Result<End, Error> {
        let (own, statements) = (&self.warehouse, self.statements);
        let row = match input {
            Input::NewOrder { district, customer, lines } => {
                let items: Vec<i32> = lines.iter().map(|line| line.item).collect();
                let supplies: Vec<i32> = lines.iter().map(|line| line.supply_warehouse).collect();
                let quantities: Vec<i32> = lines.iter().map(|line| line.quantity).collect();
                let parameters: Parameters =
                    &[own, district, customer, &count(lines), &items, &supplies, &quantities];
                let row = self.one(&statements.call_new_order, parameters).await?;
                let is_committed = row_has_value(&row);
                return Ok(if is_committed { End::Committed } else { End::RolledBack });
            }
            Input::Payment { district, of, customer, cents } => {
                let (id, name) = named(customer);
                let amount = money(*cents);
                let parameters: Parameters = &[own, district, &of.0, &of.1, &id, &name, &amount];
                self.one(&statements.call_payment, parameters).await?
            }
            Input::OrderStatus { district, customer } => {
                let (id, name) = named(customer);
                self.one(&statements.call_order_status, &[own, district, &id, &name]).await?
            }
            Input::Delivery { carrier } => {
                self.one(&statements.call_delivery, &[own, carrier]).await?
            }
            Input::StockLevel { district, threshold } => {
                self.one(&statements.call_stock_level, &[own, district, threshold]).await?
            }
        };
        drop(row);
        Ok(End::Committed)
    }

    /// Runs individual statements. Rolls back after an error.
    async fn in_transaction(&self, input: &Input) -> Result<End, Error> {
        self.client.batch_execute("BEGIN").await?;
        let done = match input {
            Input::NewOrder { district, customer, lines } => {
                self.new_order(*district, *customer, lines).await
            }
            Input::Payment { district, of, customer, cents } => {
                self.payment(*district, *of, customer, money(*cents)).await
            }
            Input::OrderStatus { district, customer } => {
                self.order_status(*district, customer).await
            }
            Input::Delivery { carrier } => self.delivery(*carrier).await,
            Input::StockLevel { district, threshold } => {
                self.stock_level(*district, *threshold).await
            }
        };
        match done {
            Ok(End::Committed) => self.client.batch_execute("COMMIT").await?,
            Ok(End::RolledBack) => self.client.batch_execute("ROLLBACK").await?,
            Err(_) => {
                // A lost connection has already rolled back.
                let _ = self.client.batch_execute("ROLLBACK").await;
            }
        }
        done
    }

    async fn new_order(&self, district: i32, customer: i32, lines: &[Line]) -> Result<End, Error> {
        let (own, statements) = (self.warehouse, self.statements);
        let known = self.one(&statements.customer_and_tax, &[&own, &district, &customer]).await?;
        let next = self.one(&statements.next_order, &[&own, &district]).await?;
        let order: i32 = next.try_get(0)?;
        let is_local = i32::from(lines.iter().all(|line| line.supply_warehouse == own));
        let parameters: Parameters =
            &[&order, &district, &own, &customer, &count(lines), &is_local];
        self.change(&statements.add_order, parameters).await?;
        self.change(&statements.add_new_order, &[&order, &district, &own]).await?;
        let mut cents = 0;
        for (number, line) in (1_i32..).zip(lines) {
            let Some(item) = self.client.query_opt(&statements.price, &[&line.item]).await? else {
                return Ok(End::RolledBack);
            };
            let amount = item.try_get::<_, i32>(0)? * line.quantity;
            let is_remote = i32::from(line.supply_warehouse != own);
            let parameters: Parameters =
                &[&line.supply_warehouse, &line.item, &line.quantity, &is_remote, &district];
            let stock = self.one(&statements.take_stock, parameters).await?;
            let info: String = stock.try_get(0)?;
            let amount_text = money(amount.unsigned_abs());
            let Line { item, supply_warehouse, quantity } = line;
            let parameters: Parameters = &[
                &order,
                &district,
                &own,
                &number,
                item,
                supply_warehouse,
                quantity,
                &amount_text,
                &info,
            ];
            self.change(&statements.add_line, parameters).await?;
            cents += amount;
        }
        let (discount, tax): (f64, f64) = (known.try_get(0)?, known.try_get(1)?);
        let total = f64::from(cents) / 100.0
            * (1.0 - discount)
            * (1.0 + tax + next.try_get::<_, f64>(1)?);
        // Computes what the user's screen would show.
        std::hint::black_box(total);
        Ok(End::Committed)
    }

    /// Returns the customer's number. Among several of the same name, the middle one, clause
    /// 2.5.2.2.
    async fn customer(
        &self,
        (warehouse, district): (i32, i32),
        customer: &Customer,
    ) -> Result<i32, Error> {
        match customer {
            Customer::Id(id) => Ok(*id),
            Customer::LastName(name) => {
                let parameters: Parameters = &[&warehouse, &district, name];
                let statement = &self.statements.customer_by_name;
                let named = self.client.query(statement, parameters).await?;
                let middle = named.len().div_ceil(2).saturating_sub(1);
                named.get(middle).map_or(Ok(0), |row| row.try_get(0))
            }
        }
    }

    async fn payment(
        &self,
        district: i32,
        of: (i32, i32),
        customer: &Customer,
        amount: String,
    ) -> Result<End, Error> {
        let (own, statements) = (self.warehouse, self.statements);
        let warehouse = self.one(&statements.pay_warehouse, &[&own, &amount]).await?;
        let paid = self.one(&statements.pay_district, &[&own, &district, &amount]).await?;
        let id = self.customer(of, customer).await?;
        let parameters: Parameters = &[&of.0, &of.1, &id, &amount, &district, &own];
        self.one(&statements.pay_customer, parameters).await?;
        let (warehouse, paid): (&str, &str) = (warehouse.try_get(0)?, paid.try_get(0)?);
        let text = format!("{warehouse}    {paid}");
        let parameters: Parameters = &[&id, &of.1, &of.0, &district, &own, &amount, &text];
        self.change(&statements.add_history, parameters).await?;
        Ok(End::Committed)
    }

    async fn order_status(&self, district: i32, customer: &Customer) -> Result<End, Error> {
        let (own, statements) = (self.warehouse, self.statements);
        let id = self.customer((own, district), customer).await?;
        self.one(&statements.customer, &[&own, &district, &id]).await?;
        let last = self.one(&statements.last_order, &[&own, &district, &id]).await?;
        let order: i32 = last.try_get(0)?;
        self.client.query(&statements.lines, &[&own, &district, &order]).await?;
        Ok(End::Committed)
    }

    async fn delivery(&self, carrier: i32) -> Result<End, Error> {
        let (own, statements) = (self.warehouse, self.statements);
        for district in 1..=i32::try_from(DISTRICTS).expect("there are ten") {
            let Some(order) = self.oldest(district).await? else { continue };
            let parameters: Parameters = &[&own, &district, &order, &carrier];
            let ordering: i32 = self.one(&statements.carry_order, parameters).await?.try_get(0)?;
            let parameters: Parameters = &[&own, &district, &order];
            let lines = self.one(&statements.deliver_lines, parameters).await?;
            let amounts: String = lines.try_get(0)?;
            let parameters: Parameters = &[&own, &district, &ordering, &amounts];
            self.change(&statements.credit_customer, parameters).await?;
        }
        Ok(End::Committed)
    }

    /// Removes and returns the oldest new order of a district.
    async fn oldest(&self, district: i32) -> Result<Option<i32>, Error> {
        let parameters: Parameters = &[&self.warehouse, &district];
        let statements = self.statements;
        for _ in 0..DELIVERY_ATTEMPTS_MAX {
            let taken = self.client.query_opt(&statements.oldest_new_order, parameters).await?;
            if let Some(row) = taken {
                return Ok(Some(row.try_get(0)?));
            }
            if self.client.query_opt(&statements.any_new_order, parameters).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    async fn stock_level(&self, district: i32, threshold: i32) -> Result<End, Error> {
        let (own, statements) = (self.warehouse, self.statements);
        let next = self.one(&statements.district_next, &[&own, &district]).await?;
        let next: i32 = next.try_get(0)?;
        let parameters: Parameters = &[&own, &district, &next, &threshold];
        self.one(&statements.low_stock, parameters).await?;
        Ok(End::Committed)
    }
}

fn count(lines: &[Line]) -> i32 {
    i32::try_from(lines.len()).expect("an order has fifteen lines at most")
}

fn named(customer: &Customer) -> (Option<i32>, Option<&str>) {
    match customer {
        Customer::Id(id) => (Some(*id), None),
        Customer::LastName(name) => (None, Some(name)),
    }
}

/// Returns whether the first column is not null, of any type.
fn row_has_value(row: &Row) -> bool {
    row.try_get::<_, Option<Anything>>(0).is_ok_and(|value| value.is_some())
}

/// A value of which only the presence matters.
struct Anything;

impl<'row> tokio_postgres::types::FromSql<'row> for Anything {
    fn from_sql(
        _: &tokio_postgres::types::Type,
        _: &'row [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self)
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }
}
