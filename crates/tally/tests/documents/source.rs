//! What those who change Tally are told: commands of `cargo xtask`, and the map of the code.

use crate::page::{Page, assert_same, file, root, words};
use std::collections::BTreeSet;

/// The commands of `cargo xtask`, from the enum that clap reads.
fn xtask_commands() -> BTreeSet<String> {
    let source = file("xtask/src/main.rs");
    let variants = source.split("enum Command {").nth(1).unwrap().split("\n}").next().unwrap();
    let names = variants.lines().map(str::trim).filter(|line| line.starts_with(char::is_uppercase));
    let names: BTreeSet<String> = names.map(|line| kebab(line.split(['(', ',']).next().unwrap())).collect();
    assert!(names.contains("redis-suite"), "the commands are written otherwise: {names:?}");
    names
}

fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (n, c) in name.char_indices() {
        if n > 0 && c.is_uppercase() {
            text.push('-');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[test]
fn contributors_are_told_every_command_of_xtask_and_no_other() {
    let contributing = Page::open("CONTRIBUTING.md").section("## Test");
    let lines = contributing.text().lines().filter_map(|line| line.strip_prefix("cargo xtask "));
    let written = lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
    assert_same("CONTRIBUTING.md, \"Test\"", &written, "cargo xtask", &xtask_commands());

    let changelog = file("CHANGELOG.md");
    let listed = changelog.split("`cargo xtask check |").nth(1).expect("the changelog lists them").split('`').next();
    let written = listed.unwrap().split('|').map(|name| name.trim().to_owned()).chain(["check".to_owned()]).collect();
    assert_same("CHANGELOG.md", &written, "cargo xtask", &xtask_commands());
}

/// The first column of the map: `core/id`, `identity` are two modules of `core`.
fn mapped() -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for row in Page::open("ARCHITECTURE.md").section("## The code map").rows() {
        let mut folder = String::new();
        for word in words(&row[0]) {
            match word.rsplit_once('/') {
                Some((before, _)) => folder = format!("{before}/"),
                None => {
                    paths.insert(format!("{folder}{word}"));
                    continue;
                }
            }
            paths.insert(word);
        }
    }
    paths
}

/// The folder of a path of the map, which leaves out what goes without saying.
fn source_of(path: &str) -> String {
    match path.split('/').next().unwrap() {
        "crates" | "xtask" | "sim" | "web" => path.to_owned(),
        "memory" => format!("crates/core/src/{path}"),
        "engine" => format!("crates/node/src/{path}"),
        "http" => format!("crates/node/src/frontend/{path}"),
        krate => format!("crates/{krate}/src/{}", path.split_once('/').map_or("", |(_, rest)| rest)),
    }
}

#[test]
fn everything_on_the_map_of_the_code_is_there() {
    let is_there = |path: &&String| {
        let source = root().join(source_of(path));
        source.is_dir() || source.with_extension("rs").is_file()
    };
    let gone: Vec<String> = mapped().iter().filter(|path| !is_there(path)).cloned().collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md, \"The code map\" has what is not there: {gone:?}");
}

#[test]
fn the_map_of_the_code_has_every_crate_and_their_modules() {
    let mapped = mapped();
    let mut missing = Vec::new();
    for krate in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let krate = krate.file_name().into_string().unwrap();
        if !mapped.contains(&format!("crates/{krate}")) {
            missing.push(format!("crates/{krate}"));
        }
        // Of the others the crate is the entry.
        if !["core", "storage", "node"].contains(&krate.as_str()) {
            continue;
        }
        for module in std::fs::read_dir(root().join(format!("crates/{krate}/src"))).unwrap().flatten() {
            let name = module.file_name().into_string().unwrap();
            let Some(name) = name.strip_suffix(".rs").filter(|name| *name != "lib") else { continue };
            let path = format!("{krate}/{name}");
            if !mapped.iter().any(|there| *there == path || there.starts_with(&format!("{path}/"))) {
                missing.push(path);
            }
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md, \"The code map\" lacks {missing:?}");
}

/// Where `Type::name` would be written: a function, a field or a variant of that name in a file that has the type.
fn is_written(type_name: &str, name: &str, sources: &[String]) -> bool {
    let is_type = |source: &&String| {
        ["struct ", "enum ", "trait ", "impl ", "> "].iter().any(|word| source.contains(&format!("{word}{type_name}")))
    };
    let forms = [
        format!("fn {name}("),
        format!("fn {name}<"),
        format!(" {name}:"),
        format!(" {name},"),
        format!(" {name} {{"),
        format!(" {name}("),
    ];
    sources.iter().filter(is_type).any(|source| forms.iter().any(|form| source.contains(form)))
}

fn sources(folder: std::path::PathBuf, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn what_the_architecture_names_in_the_code_is_there() {
    let mut code = Vec::new();
    for krate in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        sources(krate.path().join("src"), &mut code);
    }
    let named = Page::open("ARCHITECTURE.md").code().into_iter().filter_map(|word| {
        let (type_name, name) = word.split_once("::")?;
        let is_path = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
        let is_one = type_name.starts_with(char::is_uppercase) && is_path(type_name) && is_path(name);
        is_one.then(|| (type_name.to_owned(), name.to_owned()))
    });
    let named: Vec<(String, String)> = named.collect();
    assert!(named.len() > 10, "the architecture names assertions by where they are: {named:?}");
    let gone: Vec<_> = named.iter().filter(|(type_name, name)| !is_written(type_name, name, &code)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names what is not in the code: {gone:?}");
}

#[test]
fn a_frontend_holds_the_seam_and_nothing_of_the_engine() {
    let mut code = Vec::new();
    sources(root().join("crates/node/src/frontend"), &mut code);
    assert!(code.iter().any(|source| source.contains("crate::counters::")), "frontends hold it by another name");
    let past: Vec<&str> =
        code.iter().flat_map(|source| source.lines()).filter(|line| line.contains("crate::engine")).collect();
    assert!(past.is_empty(), "frontends go past `node/counters`: {past:?}");
}
