//! Low-level client that sends and receives protocol messages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Read timeout of all tests.
const READ_TIME_MAX: Duration = Duration::from_secs(60);

/// An authenticated connection.
pub(crate) struct RawClient {
    stream: TcpStream,
    /// Id for `pg_cancel_backend`.
    pub(crate) id: i32,
}

/// A message from the server: type byte and body.
pub(crate) type Message = (u8, Vec<u8>);

impl RawClient {
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(READ_TIME_MAX)).expect("a time");
        let mut client = Self { stream, id: 0 };
        let body = [&(3_u32 << 16).to_be_bytes()[..], b"user\0admin\0\0"].concat();
        client.write(&[&length_of(&body), &body[..]].concat());
        for (kind, body) in client.until(b'Z') {
            if kind == b'K' {
                client.id = i32::from_be_bytes(body[..4].try_into().expect("an id"));
            }
        }
        client
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Reads bytes.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) {
        self.stream.read_exact(bytes).expect("the server sends");
    }

    /// Reads messages up to one of type `last`.
    pub(crate) fn until(&mut self, last: u8) -> Vec<Message> {
        self.after(Vec::new(), last)
    }

    /// Same as [`Self::until`], after some bytes were read already. Checks that each message is
    /// complete and has a valid type.
    pub(crate) fn after(&mut self, read: Vec<u8>, last: u8) -> Vec<Message> {
        let mut input = std::io::Cursor::new(read).chain(&mut self.stream);
        let mut messages = Vec::new();
        loop {
            let mut head = [0; 5];
            input.read_exact(&mut head).expect("a message");
            assert!(b"123CDEGHIKNRSTVZcdnst".contains(&head[0]), "{head:?} begins no message");
            let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes"));
            let mut body = vec![0; usize::try_from(length).expect("a length") - 4];
            input.read_exact(&mut body).expect("the rest of a message");
            messages.push((head[0], body));
            if head[0] == last {
                return messages;
            }
        }
    }
}

/// Encodes a message of the client.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &length_of(body), body].concat()
}

pub(crate) fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

/// Encodes Parse, Bind and Execute of a statement without parameters.
pub(crate) fn executed(text: &str) -> Vec<u8> {
    let parse = [b"\0", text.as_bytes(), b"\0\0\0"].concat();
    let (bind, execute) = (b"\0\0\0\0\0\0\0\0", b"\0\0\0\0\0");
    [message(b'P', &parse), message(b'B', bind), message(b'E', execute)].concat()
}

/// Returns the field of an error or notice with this letter.
pub(crate) fn field(body: &[u8], letter: u8) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let found = fields.find(|it| it.first() == Some(&letter)).expect("it has the field");
    String::from_utf8_lossy(&found[1..]).into_owned()
}

fn length_of(body: &[u8]) -> [u8; 4] {
    u32::try_from(body.len() + 4).expect("a short message").to_be_bytes()
}
