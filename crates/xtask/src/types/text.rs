//! What the writers of all languages need.

/// The first line of every generated file, after the language's sign for a comment.
pub(super) const FIRST_LINE: &str = "Generated from docs/openapi.json by `cargo xtask types`. Do not edit.";

/// The lines of a text, each at most so many characters long.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.trim().lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}
