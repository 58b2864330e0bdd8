//! Tables that tidy reads from `ARCHITECTURE.md`: the layers, and the crates with unsafe code.

use crate::repository::Repository;

pub(crate) const PATH: &str = "ARCHITECTURE.md";

/// One row of the layer table: a folder and the folders that its crates may use.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub folder: String,
    pub may_use: Vec<String>,
}

/// Returns the rows of the table with the header `| folder | … | may use |`. Names are in backticks
/// and end in a slash.
pub(crate) fn layers(repository: &Repository) -> Vec<Layer> {
    rows_under(text(repository), "| folder |")
        .into_iter()
        .filter_map(|cells| {
            let folder = folders_in(cells.first()?).into_iter().next()?;
            Some(Layer { folder, may_use: folders_in(cells.last()?) })
        })
        .collect()
}

/// Returns the crates that may contain unsafe code: bullets such as ``- `base/region`: …`` under
/// the heading `## Unsafe code`.
pub(crate) fn crates_with_unsafe_code(repository: &Repository) -> Vec<String> {
    text(repository)
        .lines()
        .skip_while(|line| *line != "## Unsafe code")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("- "))
        .filter_map(|line| in_backticks(line).into_iter().next())
        .collect()
}

/// Returns the cells of each row of the Markdown table whose header line begins with `header`.
pub(crate) fn rows_under<'a>(text: &'a str, header: &str) -> Vec<Vec<&'a str>> {
    text.lines()
        .skip_while(|line| !line.starts_with(header))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// Returns the parts of `text` in backticks.
pub(crate) fn in_backticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn folders_in(cell: &str) -> Vec<String> {
    in_backticks(cell)
        .into_iter()
        .filter_map(|name| name.strip_suffix('/').map(str::to_owned))
        .collect()
}

fn text(repository: &Repository) -> &str {
    repository.file(PATH).map_or("", |file| &file.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::repository;

    #[test]
    fn the_layer_table_is_read_row_by_row() {
        let text = "# A\n\n| folder | what | may use |\n|---|---|---|\n\
                    | `base/` | tools `x` | nothing |\n| `pool/` | pages | `pool/`, `base/` |\n\n";
        let layer = |folder: &str, may_use: &[&str]| Layer {
            folder: folder.to_owned(),
            may_use: may_use.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            layers(&repository(&[(PATH, text)])),
            [layer("base", &[]), layer("pool", &["pool", "base"])]
        );
    }

    #[test]
    fn the_list_of_crates_with_unsafe_code_ends_at_the_next_heading() {
        let text = "## Unsafe code\n\nOnly in:\n\n- `base/region`: maps\n\n## More\n- `no/no`\n";
        assert_eq!(crates_with_unsafe_code(&repository(&[(PATH, text)])), ["base/region"]);
    }
}
