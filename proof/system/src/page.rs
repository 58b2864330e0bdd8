//! Commands in a page of the documentation.
//!
//! | in the page | in the test |
//! |---|---|
//! | a block `sh` | run, line by line, in the shell of the previous blocks |
//! | a block `sh needs=fio,cc` | run if these programs or built files exist |
//! | a block `sh cluster` | run only with a Kubernetes cluster |
//! | a block `sh example` | not run: it needs what tests lack, or shows alternatives |
//! | a block `sql` | its statements are sent to the broker that the page has started |
//! | a block `python NAME.py` | written to that file |
//! | `<!-- test: COMMAND -->` | run, but invisible to readers |
//! | `<!-- cluster test: COMMAND -->` | the same, in a cluster |

use anyhow::{Context, Result, bail};

/// A step, and its line in the page.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    pub action: Action,
}

/// Kinds of steps.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Run { script: String, needs: Vec<String> },
    RunInCluster { script: String },
    Write { file: String, text: String },
}

/// All steps of a page, in order.
///
/// # Errors
/// If a block has no end, or its kind is unknown.
pub fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        steps.extend(hidden(text).map(|action| Step { line, action }));
        let Some(words) = text.strip_prefix("```") else { continue };
        let mut block = String::new();
        loop {
            let (_, text) = lines.next().with_context(|| format!("line {line}: no end"))?;
            if text == "```" {
                break;
            }
            block = block + text + "\n";
        }
        let action = action(words, block).with_context(|| format!("line {line}"))?;
        steps.extend(action.map(|action| Step { line, action }));
    }
    Ok(steps)
}

fn hidden(text: &str) -> Option<Action> {
    let text = text.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    if let Some(script) = text.strip_prefix("cluster test: ") {
        return Some(Action::RunInCluster { script: script.to_owned() });
    }
    let script = text.strip_prefix("test: ")?.to_owned();
    Some(Action::Run { script, needs: Vec::new() })
}

/// Returns the action of a block according to the words after the fence.
fn action(words: &str, text: String) -> Result<Option<Action>> {
    let words: Vec<&str> = words.split_whitespace().collect();
    Ok(match words[..] {
        ["sh", "example"] => None,
        ["sh", "cluster"] => Some(Action::RunInCluster { script: text }),
        ["sh"] => Some(Action::Run { script: text, needs: Vec::new() }),
        ["sh", needs] => {
            let needs = needs.strip_prefix("needs=").context("blocks are sh, or sh needs=…")?;
            let needs = needs.split(',').map(str::to_owned).collect();
            Some(Action::Run { script: text, needs })
        }
        ["sql"] => Some(Action::Run {
            script: format!("memlane sql <<'END'\n{text}END\n"),
            needs: vec!["memlane-broker".to_owned()],
        }),
        ["python", file] => Some(Action::Write { file: file.to_owned(), text }),
        ["sh", ..] => bail!("{words:?} is no known kind of block"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_files_and_hidden_commands_are_found() {
        let page = "a\n<!-- test: b c -->\n```sh\nd\ne\n```\n```sh example\nf\n```\n\
                    ```toml\ng\n```\n```sh needs=h,i\nj\n```\n```python k.py\nl\n```\n\
                    ```sql\nm;\n```\n```sql example\nn\n```\n\
                    <!-- cluster test: o -->\n```sh cluster\np\n```\n";
        let cluster = |script: &str| Action::RunInCluster { script: script.to_owned() };
        let run = |script: &str, needs: &[&str]| Action::Run {
            script: script.to_owned(),
            needs: needs.iter().map(|&name| name.to_owned()).collect(),
        };
        let write = Action::Write { file: "k.py".to_owned(), text: "l\n".to_owned() };
        let expected = [
            Step { line: 2, action: run("b c", &[]) },
            Step { line: 3, action: run("d\ne\n", &[]) },
            Step { line: 13, action: run("j\n", &["h", "i"]) },
            Step { line: 16, action: write },
            Step { line: 19, action: run("memlane sql <<'END'\nm;\nEND\n", &["memlane-broker"]) },
            Step { line: 25, action: cluster("o") },
            Step { line: 26, action: cluster("p\n") },
        ];
        assert_eq!(steps(page).expect("a good page"), expected);
    }

    #[test]
    fn what_nobody_would_run_unawares_is_refused() {
        for page in ["```sh\na\n", "```sh exmaple\na\n```\n", "```sh a b\n```\n"] {
            assert!(steps(page).is_err(), "{page}");
        }
    }
}
