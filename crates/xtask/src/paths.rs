//! Which file of a crate uses items of which other file: the paths in the source are resolved as the compiler does, without
//! its types. Methods that are called on a value have no path, and are not seen.

use crate::{
    sources::read,
    tokens::{Token, tokens},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// One path in a file to an item that is defined in another file of the crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
    /// As it is written.
    pub(crate) path: String,
}

/// All edges between the files of a crate, whose names are relative to the folder of its `lib.rs` or `main.rs`.
///
/// Code for tests is left out. A re-export is not a use: `pub use` only gives an item another path, which leads to the file that
/// defines the item.
pub(crate) fn edges(main_file: &Path) -> Result<Vec<Edge>, String> {
    let folder = main_file.parent().unwrap_or(main_file);
    let mut modules = Modules::default();
    let root = modules.add(None, main_file);
    modules.add_file(root, folder)?;
    let name = |module: usize| {
        let file = &modules.all[module].file;
        file.strip_prefix(folder).unwrap_or(file).display().to_string()
    };
    let mut edges = Vec::new();
    for (index, module) in modules.all.iter().enumerate() {
        for path in &module.uses {
            for to in modules.defining(index, path) {
                let (from, to) = (name(index), name(to));
                if from != to {
                    edges.push(Edge { from, to, path: path.join("::") });
                }
            }
        }
    }
    edges.sort();
    edges.dedup();
    Ok(edges)
}

type Names = Vec<String>;
/// The module of an import, its path, and the name that is looked for if it is `path::*`.
type Import = (usize, Names, Option<String>);

#[derive(Default)]
struct Modules {
    all: Vec<Module>,
}

struct Module {
    parent: Option<usize>,
    file: PathBuf,
    names: BTreeMap<String, Vec<Meaning>>,
    /// Paths of `use path::*`.
    globs: Vec<Names>,
    /// Paths that are used, in code and in imports.
    uses: BTreeSet<Names>,
}

/// What a name in a module stands for. It can be several things, such as a module and a function.
#[derive(Clone)]
enum Meaning {
    Module(usize),
    Item,
    Import(Names),
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

impl Modules {
    fn add(&mut self, parent: Option<usize>, file: &Path) -> usize {
        let file = file.to_path_buf();
        self.all.push(Module { parent, file, names: BTreeMap::new(), globs: vec![], uses: BTreeSet::new() });
        self.all.len() - 1
    }

    /// Reads the module's file. Files of its child modules are in `folder`.
    fn add_file(&mut self, module: usize, folder: &Path) -> Result<(), String> {
        let text = read(&self.all[module].file)?;
        self.add_tokens(module, folder, &tokens(&text)).map(drop)
    }

    /// Reads the tokens up to the end of the module, and returns how many these are.
    fn add_tokens(&mut self, module: usize, folder: &Path, tokens: &[Token<'_>]) -> Result<usize, String> {
        let mut depth = 0;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let next = tokens.get(at + 1);
            match (token, next) {
                (Token::Mark('#'), _) if is_for_tests(&tokens[at..]) => {
                    at += item_length(&tokens[at..]);
                    continue;
                }
                (Token::Mark('}'), _) if depth == 0 => return Ok(at + 1),
                (Token::Mark('{' | '(' | '['), _) => depth += 1,
                (Token::Mark('}' | ')' | ']'), _) => depth -= 1,
                (Token::Name("use"), Some(Token::Name(_))) => {
                    let is_exported =
                        at > 0 && matches!(tokens[at - 1], Token::Name("pub") | Token::Mark(')'));
                    at += 1 + self.add_imports(module, &tokens[at + 1..], &[], is_exported);
                    continue;
                }
                (Token::Name("mod"), Some(Token::Name(name))) => {
                    at += 3 + self.add_child(module, folder, name, &tokens[at + 2..])?;
                    continue;
                }
                (Token::Name(keyword), Some(Token::Name(name))) if is_item(keyword) => {
                    // In `const fn name`, the name follows the second keyword.
                    let is_named = !is_item(name) && !["async", "mut", "unsafe"].contains(name);
                    if is_named && depth == 0 {
                        self.name(module, name, Meaning::Item);
                    }
                    at += usize::from(is_named);
                }
                (Token::Name("macro_rules"), Some(Token::Mark('!'))) => {
                    if let Some(Token::Name(name)) = tokens.get(at + 2) {
                        self.name(module, name, Meaning::Item);
                    }
                }
                (Token::Name(_), _) => {
                    at += self.add_use(module, tokens, at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(at)
    }

    fn name(&mut self, module: usize, name: &str, meaning: Meaning) {
        self.all[module].names.entry(name.into()).or_default().push(meaning);
    }

    /// `tokens` begin after the name. Returns how many of them, after the first, belong to the child.
    fn add_child(
        &mut self,
        module: usize,
        folder: &Path,
        name: &str,
        tokens: &[Token<'_>],
    ) -> Result<usize, String> {
        let folder = folder.join(name);
        let is_inline = tokens.first() == Some(&Token::Mark('{'));
        let file = match is_inline {
            true => self.all[module].file.clone(),
            false => [folder.join("mod.rs"), folder.with_extension("rs")]
                .into_iter()
                .find(|file| file.exists())
                .ok_or_else(|| {
                    format!("{} has no file for `mod {name};`", self.all[module].file.display())
                })?,
        };
        let child = self.add(Some(module), &file);
        self.name(module, name, Meaning::Module(child));
        match is_inline {
            true => self.add_tokens(child, &folder, &tokens[1..]),
            false => self.add_file(child, &folder).map(|()| 0),
        }
    }

    /// Adds the names of a `use` tree, whose path up to here is `before`. Returns the number of its tokens.
    fn add_imports(
        &mut self,
        module: usize,
        tokens: &[Token<'_>],
        before: &[String],
        is_exported: bool,
    ) -> usize {
        let mut path = before.to_vec();
        let mut renamed = None;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                Token::Name("as") => {
                    if let Some(Token::Name(name)) = tokens.get(at + 1) {
                        renamed = Some((*name).to_owned());
                    }
                    at += 1;
                }
                // In braces, `self` is the module in front of them.
                Token::Name("self") if !path.is_empty() => {}
                Token::Name(name) => path.push((*name).to_owned()),
                Token::Mark('*') => {
                    self.all[module].globs.push(path.clone());
                    // Only an import of all variants of an enum leads to an item.
                    self.all[module].uses.extend((!is_exported).then(|| path.clone()));
                    return at + 1;
                }
                Token::Mark('{') => {
                    at += 1;
                    while at < tokens.len() && tokens[at] != Token::Mark('}') {
                        at += self.add_imports(module, &tokens[at..], &path, is_exported);
                        at += usize::from(tokens.get(at) == Some(&Token::Mark(',')));
                    }
                    return at + 1;
                }
                Token::Colons => {}
                _ => break,
            }
            at += 1;
        }
        if let Some(name) = renamed.or_else(|| path.last().cloned()) {
            self.name(module, &name, Meaning::Import(path.clone()));
            self.all[module].uses.extend((!is_exported).then_some(path));
        }
        at
    }

    /// Adds the path in code that begins here. Returns the number of its tokens.
    fn add_use(&mut self, module: usize, tokens: &[Token<'_>], at: usize) -> usize {
        let mut path = Vec::new();
        let mut end = at;
        while let Some(Token::Name(name)) = tokens.get(end) {
            path.push((*name).to_owned());
            end += 1;
            match (tokens.get(end), tokens.get(end + 1)) {
                (Some(Token::Colons), Some(Token::Name(_))) => end += 1,
                _ => break,
            }
        }
        let is_member = at > 0 && matches!(tokens[at - 1], Token::Mark('.') | Token::Colons);
        let is_field_or_variable = path.len() == 1 && tokens.get(end) == Some(&Token::Mark(':'));
        if !is_member && !is_field_or_variable {
            self.all[module].uses.insert(path);
        }
        end - at
    }

    /// The modules that define the items to which a path in this module leads.
    fn defining(&self, module: usize, path: &[String]) -> Vec<usize> {
        let targets = self.resolve(module, path, &mut Vec::new());
        let items = targets.into_iter().filter_map(|target| match target {
            Target::Item(module) => Some(module),
            Target::Module(_) => None,
        });
        items.collect()
    }

    /// `open` are the imports that are being resolved: an import may begin with its own name.
    fn resolve(&self, module: usize, path: &[String], open: &mut Vec<Import>) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return vec![] };
        let mut targets = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => self.all[module].parent.map(Target::Module).into_iter().collect(),
            name => self.look_up(module, name, open),
        };
        for name in rest {
            let in_module = |target: &Target| match *target {
                Target::Module(module) if name == "super" => {
                    self.all[module].parent.map(Target::Module).into_iter().collect()
                }
                Target::Module(module) => self.look_up(module, name, open),
                Target::Item(_) => vec![],
            };
            let found: Vec<Target> = targets.iter().flat_map(in_module).collect();
            // What follows an item, such as a variant or a function of a type, belongs to the item.
            targets.retain(|target| found.is_empty() && matches!(target, Target::Item(_)));
            targets.extend(found);
        }
        targets
    }

    fn look_up(&self, module: usize, name: &str, open: &mut Vec<Import>) -> Vec<Target> {
        let mut targets = Vec::new();
        for meaning in self.all[module].names.get(name).into_iter().flatten() {
            match meaning {
                Meaning::Module(child) => targets.push(Target::Module(*child)),
                Meaning::Item => targets.push(Target::Item(module)),
                Meaning::Import(path) => targets.extend(self.follow(module, path, None, open)),
            }
        }
        if targets.is_empty() {
            let globs = self.all[module].globs.iter();
            targets = globs.flat_map(|glob| self.follow(module, glob, Some(name), open)).collect();
        }
        targets
    }

    /// What an import leads to; of all names that it imports with `*`, this name.
    fn follow(
        &self,
        module: usize,
        path: &[String],
        name: Option<&str>,
        open: &mut Vec<Import>,
    ) -> Vec<Target> {
        let import = (module, path.to_vec(), name.map(str::to_owned));
        if open.contains(&import) {
            return vec![];
        }
        open.push(import);
        let mut targets = self.resolve(module, path, open);
        if let Some(name) = name {
            // The variants of an enum, which are imported in the same way, cannot be told from other names.
            let modules = targets.iter().filter_map(|target| match target {
                Target::Module(module) => Some(self.look_up(*module, name, open)),
                Target::Item(_) => None,
            });
            targets = modules.flatten().collect();
        }
        open.pop();
        targets
    }
}

/// Whether the name of an item follows this keyword.
fn is_item(keyword: &str) -> bool {
    ["const", "enum", "fn", "static", "struct", "trait", "type", "union"].contains(&keyword)
}

/// Whether this attribute makes the next item one of tests only.
fn is_for_tests(tokens: &[Token<'_>]) -> bool {
    use Token::{Mark, Name};
    tokens.starts_with(&[Mark('#'), Mark('['), Name("cfg"), Mark('('), Name("test"), Mark(')')])
}

/// The number of tokens of an item with its attributes: up to a semicolon, or to the end of its braces.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    let mut is_import = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Name("use") if depth == 0 => is_import = true,
            Token::Mark('{' | '(' | '[') => depth += 1,
            Token::Mark('}') if depth == 1 && !is_import => return at + 1,
            Token::Mark('}' | ')' | ']') => depth -= 1,
            Token::Mark(';') if depth == 0 => return at + 1,
            _ => {}
        }
        if depth < 0 {
            return at;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of a crate, each with its text, and compares the edges between them.
    #[track_caller]
    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        }
        let edges = edges(&folder.path().join("lib.rs")).expect("edges");
        let edges: Vec<String> =
            edges.iter().map(|edge| format!("{} > {}: {}", edge.from, edge.to, edge.path)).collect();
        assert_eq!(edges, expect);
    }

    #[test]
    fn an_import_leads_to_the_file_of_its_item() {
        check(
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b::{self, B, c::{C as D, self}}; use std::fmt;"),
                ("b/mod.rs", "pub(crate) mod c; pub(crate) struct B;"),
                ("b/c.rs", "pub(crate) struct C; use super::B as _;"),
            ],
            &["a.rs > b/c.rs: crate::b::c::C", "a.rs > b/mod.rs: crate::b::B", "b/c.rs > b/mod.rs: super::B"],
        );
    }

    #[test]
    fn a_path_in_code_leads_to_the_file_of_its_item() {
        check(
            &[
                ("lib.rs", "mod a; mod b; fn f(x: b::B) { x.a.g(); b::g::<u8>(..b::C) }"),
                ("a.rs", "use crate::b; fn f() -> b::Kind { b::Kind::First }"),
                (
                    "b.rs",
                    "pub(crate) struct B; pub(crate) fn g() {} pub(crate) const C: u8 = 1; pub(crate) enum Kind {}",
                ),
            ],
            &[
                "a.rs > b.rs: b::Kind",
                "a.rs > b.rs: b::Kind::First",
                "lib.rs > b.rs: b::B",
                "lib.rs > b.rs: b::C",
                "lib.rs > b.rs: b::g",
            ],
        );
    }

    #[test]
    fn a_re_export_is_no_use_and_leads_to_the_definition() {
        check(
            &[
                ("lib.rs", "mod a; mod b; mod c; pub use a::*; pub use b::check::check;"),
                ("a.rs", "pub struct A;"),
                ("b/mod.rs", "pub(crate) mod check; pub(super) use check::check; fn f() { check(); }"),
                ("b/check.rs", "pub fn check() {}"),
                ("c.rs", "use crate::{A, check}; use super::b::check as other;"),
            ],
            &[
                "b/mod.rs > b/check.rs: check",
                "c.rs > a.rs: crate::A",
                "c.rs > b/check.rs: crate::check",
                "c.rs > b/check.rs: super::b::check",
            ],
        );
    }

    #[test]
    fn modules_inside_a_file_are_part_of_it() {
        check(
            &[
                ("lib.rs", "mod a { pub(super) mod b; pub(super) struct A; } mod c; const fn f() {}"),
                ("a/b.rs", "use super::A; use super::super::f;"),
                ("c.rs", "mod inner { use super::*; fn f() -> D { crate::f() } } use crate::a::A as D;"),
            ],
            &[
                "a/b.rs > lib.rs: super::A",
                "a/b.rs > lib.rs: super::super::f",
                "c.rs > lib.rs: D",
                "c.rs > lib.rs: crate::a::A",
                "c.rs > lib.rs: crate::f",
            ],
        );
    }

    #[test]
    fn tests_fields_variables_and_methods_are_left_out() {
        check(
            &[
                (
                    "lib.rs",
                    "mod a; pub use a::f; #[cfg(test)] mod no_such_file; fn g(f: u8) { S { f: 1 }.f(x.f); }",
                ),
                (
                    "a.rs",
                    "pub fn f() {} #[cfg(test)] use crate::{g}; #[cfg(test)] mod tests { use crate::g; }",
                ),
            ],
            &[],
        );
    }
}
