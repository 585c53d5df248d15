//! Formats tables for people: columns, alignment and colours.

use std::fmt;
use unicode_width::UnicodeWidthStr;

/// A line of column names, then a line for each row. A column whose name begins with `>` is aligned to the right.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

struct Column {
    name: String,
    is_right: bool,
}

struct Row {
    cells: Vec<String>,
    /// A style of the terminal, which is dropped where it is not wanted.
    style: &'static str,
}

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Table {
        let column = |name: &&str| Column {
            name: name.trim_start_matches('>').to_owned(),
            is_right: name.starts_with('>'),
        };
        Table { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Row { cells: cells.into(), style: "" });
    }

    /// A row that needs attention.
    #[cfg(feature = "client")]
    pub(crate) fn red_row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Row { cells: cells.into(), style: "\x1b[31m" });
    }

    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        cells: &[&str],
        widths: &[usize],
        style: &str,
    ) -> fmt::Result {
        let mut line = String::new();
        for ((column, width), cell) in self.columns.iter().zip(widths).zip(cells) {
            let gap = " ".repeat(width - cell.width());
            match column.is_right {
                true => line.extend([gap.as_str(), cell, "  "]),
                false => line.extend([*cell, gap.as_str(), "  "]),
            }
        }
        let end = if style.is_empty() { "" } else { PLAIN };
        writeln!(f, "{style}{}{end}", line.trim_end())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |place: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(place));
            let widest = cells.map(|cell| cell.width()).max().unwrap_or(0);
            widest.max(self.columns[place].name.width())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        self.write(f, &names, &widths, BOLD)?;
        for row in &self.rows {
            let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
            self.write(f, &cells, &widths, row.style)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = Table::new(&["name", ">used", "note"]);
        assert!(table.is_empty());
        table.row(["a".into(), "1,000".into(), String::new()]);
        table.row(["世界".into(), "2".into(), "\u{e9}".into()]);
        let text = table.to_string();
        assert_eq!(text, "\x1b[1mname   used  note\x1b[0m\na     1,000\n世界      2  \u{e9}\n");
    }
}
