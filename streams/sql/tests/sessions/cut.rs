//! Statements that are ended while their client reads slowly: the client always receives complete
//! messages.

use crate::raw::{RawClient, field, query};
use crate::support::{Running, run, texts};
use sql::Limits;

/// More than the socket buffers hold, in messages of different lengths.
const ROWS: &str = "select v, repeat(chr(65 + (v % 26)::int), 700 + (v % 7)::int) \
     from generate_series(1, 40000) t(v) order by v";

/// Checks that the rows are complete and in order, followed by an error, or by the regular end if
/// the cancellation was too late.
fn check_rows(messages: &[(u8, Vec<u8>)], row_kind: u8) {
    let rows: Vec<_> = messages.iter().filter(|it| it.0 == row_kind).collect();
    for (index, (_, body)) in rows.iter().enumerate() {
        let v = index + 1;
        let number = v.to_string();
        let letters = char::from(b'A' + u8::try_from(v % 26).expect("a letter"));
        let letters = letters.to_string().repeat(700 + v % 7);
        let expected = match row_kind {
            b'd' => format!("{number}\t{letters}\n").into_bytes(),
            _ => {
                let length = |text: &str| u32::try_from(text.len()).expect("short").to_be_bytes();
                let (first, second) = (length(&number), length(&letters));
                let texts = [&first[..], number.as_bytes(), &second[..], letters.as_bytes()];
                [&[0, 2][..], &texts.concat()].concat()
            }
        };
        assert!(*body == expected, "row {v} is not what it was");
    }
    let (kind, body) = &messages[messages.len() - 2];
    assert_eq!(*kind, b'E', "after {} rows", rows.len());
    assert_eq!(field(body, b'C'), "57014");
}

fn check(text: &'static str, row_kind: u8) {
    run(async move {
        let running = Running::start(Limits::default(), false).await;
        let (port, server) = (running.port, running.server.clone());
        let tried = tokio::task::spawn_blocking(move || {
            for read_bytes in (0..300).step_by(13).chain([70_000, 400_001]) {
                let mut client = RawClient::connect(port);
                client.write(&query(text));
                let mut read = vec![0; read_bytes];
                client.read(&mut read);
                // The server is blocked in the middle of a message, or will be.
                while !server.cancel(client.id) {
                    std::thread::yield_now();
                }
                check_rows(&client.after(read, b'Z'), row_kind);
                client.write(&query("select 1"));
                let kinds: Vec<_> = client.until(b'Z').iter().map(|it| it.0).collect();
                assert_eq!(kinds, b"TDCZ", "the connection goes on");
            }
        });
        tried.await.expect("all went well");
        running.stop().await;
    });
}

#[test]
fn a_query_that_is_cancelled_while_a_slow_client_reads_ends_behind_a_whole_message() {
    check(ROWS, b'D');
}

#[test]
fn a_copy_that_is_cancelled_while_a_slow_client_reads_ends_behind_a_whole_message() {
    const COPY: &str = "copy (select v, repeat(chr(65 + (v % 26)::int), 700 + (v % 7)::int) \
         from generate_series(1, 40000) t(v) order by v) to stdout";
    check(COPY, b'd');
}

/// Ended by its timeout, unless the client has received everything before.
#[test]
fn a_query_whose_time_is_over_while_a_slow_client_reads_ends_behind_a_whole_message() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let port = running.port;
        let tried = tokio::task::spawn_blocking(move || {
            let mut client = RawClient::connect(port);
            client.write(&query("set statement_timeout = '300ms'"));
            client.until(b'Z');
            client.write(&query(ROWS));
            let mut read = vec![0; 100_003];
            client.read(&mut read);
            std::thread::sleep(std::time::Duration::from_secs(1));
            check_rows(&client.after(read, b'Z'), b'D');
        });
        tried.await.expect("all went well");
        running.stop().await;
    });
}

/// The client cannot be notified, because it does not read. The connection ends anyway.
#[test]
fn a_client_that_reads_nothing_does_not_keep_its_connection_from_being_ended() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let (port, other) = (running.port, running.client().await);
        let mut slow = tokio::task::spawn_blocking(move || {
            let mut client = RawClient::connect(port);
            client.write(&query(ROWS));
            client
        });
        let client = (&mut slow).await.expect("it is connected");
        let running_of = format!(
            "select count(*) from pg_stat_activity where pid = {} and state = 'active'",
            client.id
        );
        while texts(&other, &running_of).await.concat() != ["1"] {}
        // The server sends until the buffers are full, whether the statement was cancelled or not.
        let end = format!("select pg_terminate_backend({})", client.id);
        assert_eq!(texts(&other, &end).await.concat(), ["t"]);
        let gone = format!("select count(*) from pg_stat_activity where pid = {}", client.id);
        while texts(&other, &gone).await.concat() != ["0"] {
            tokio::task::yield_now().await;
        }
        drop(client);
        running.stop().await;
    });
}
