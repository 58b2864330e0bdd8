//! Kafka's command-line tools in one Java virtual machine, whose start takes a second.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow, bail};

use crate::java::JavaClient;

/// The virtual machine of this suite. Tests use it one at a time.
static SHARED: OnceLock<Result<Mutex<ToolBox>>> = OnceLock::new();

/// A virtual machine that runs classes on request. See `ToolBox.java` for the protocol.
pub struct ToolBox {
    requests: ChildStdin,
    answers: ChildStdout,
    /// Ends when its input is closed.
    _process: Child,
}

/// Result of a tool, and its output.
#[derive(Debug)]
pub struct Answer {
    pub exit_code: u32,
    pub printed: String,
    pub errors: String,
}

impl ToolBox {
    /// Runs the main method of `class`. `input` is its standard input.
    pub fn run(class: &str, arguments: &[&str], input: &str) -> Result<Answer> {
        let shared = SHARED.get_or_init(|| Self::start().map(Mutex::new));
        let shared = shared.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        let mut machine = shared.lock().unwrap_or_else(PoisonError::into_inner);
        machine.ask(class, arguments, input).with_context(|| format!("cannot run {class}"))
    }

    /// Returns the arguments of a tool for the broker at `address`. No option contains a blank.
    pub fn words<'a>(address: &'a str, options: &'a str) -> Vec<&'a str> {
        let options = options.split_whitespace();
        ["--bootstrap-server", address].into_iter().chain(options).collect()
    }

    /// Runs `class`, which must succeed, and returns its output.
    pub fn check(class: &str, arguments: &[&str], input: &str) -> Result<String> {
        let answer = Self::run(class, arguments, input)?;
        if answer.exit_code != 0 {
            let Answer { exit_code, printed, errors } = answer;
            let words = arguments.join(" ");
            bail!("{class} {words} failed ({exit_code}): {printed}{errors}");
        }
        Ok(answer.printed)
    }

    fn start() -> Result<Self> {
        let words = JavaClient::fetched()?.command("ToolBox");
        let mut process = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run java")?;
        let requests = process.stdin.take().context("its standard input is a pipe")?;
        let answers = process.stdout.take().context("its standard output is a pipe")?;
        Ok(Self { requests, answers, _process: process })
    }

    fn ask(&mut self, class: &str, arguments: &[&str], input: &str) -> Result<Answer> {
        let mut request = Vec::new();
        put_text(&mut request, class)?;
        put_number(&mut request, arguments.len())?;
        for argument in arguments {
            put_text(&mut request, argument)?;
        }
        put_text(&mut request, input)?;
        self.requests.write_all(&request).context("Java has ended")?;
        self.requests.flush().context("Java has ended")?;
        let exit_code = self.number()?;
        Ok(Answer { exit_code, printed: self.text()?, errors: self.text()? })
    }

    fn number(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.answers.read_exact(&mut bytes).context("Java ended without an answer")?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn text(&mut self) -> Result<String> {
        let length = self.number()?;
        let mut bytes = Vec::new();
        let mut part = Read::by_ref(&mut self.answers).take(u64::from(length));
        part.read_to_end(&mut bytes).context("Java ended in the middle of an answer")?;
        String::from_utf8(bytes).context("a tool printed no UTF-8")
    }
}

fn put_number(request: &mut Vec<u8>, number: usize) -> Result<()> {
    let number = u32::try_from(number).context("a request is too long")?;
    request.extend(number.to_be_bytes());
    Ok(())
}

fn put_text(request: &mut Vec<u8>, text: &str) -> Result<()> {
    put_number(request, text.len())?;
    request.extend(text.as_bytes());
    Ok(())
}
