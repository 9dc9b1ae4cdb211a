//! Puts the page at `/` into the binary, if somebody has built it (`cargo xtask web`): a table of its files for `endpoints/page.rs`.
//!
//! Nothing is fetched or built here, so that a build without npm and without a network is a build like any other.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

/// It is always there and what is built comes into it, so cargo notices when that happens.
const DIST: &str = "../../web/dist";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={DIST}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to write"));
    let built = Path::new(DIST).join("page");
    let table = match built.join("index.html").is_file() {
        true => table(&built, &out)?,
        false => "None".to_owned(),
    };
    fs::write(out.join("page.rs"), format!("static BUILT: Option<Page> = {table};\n"))
}

/// The page as Rust has it. Its files are copied, so that what is compiled is what was found.
fn table(built: &Path, out: &Path) -> io::Result<String> {
    fs::copy(built.join("index.html"), out.join("index.html"))?;
    let mut assets = fs::read_dir(built.join("assets"))?.collect::<Result<Vec<_>, _>>()?;
    assets.sort_by_key(fs::DirEntry::file_name);
    let mut table = format!("Some(Page {{ index: include_str!({:?}), assets: &[\n", out.join("index.html"));
    for asset in assets {
        let name = asset.file_name().into_string().expect("names of assets are ASCII");
        let (plain, gzip) = (out.join(&name), out.join(format!("{name}.gz")));
        let bytes = fs::read(asset.path())?;
        fs::write(&plain, &bytes)?;
        let mut encoder = GzEncoder::new(fs::File::create(&gzip)?, Compression::best());
        encoder.write_all(&bytes)?;
        encoder.finish()?;
        let line =
            format!("Asset {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({gzip:?}) }},");
        writeln!(table, "{line}").expect("a string takes everything");
    }
    table.push_str("] })");
    Ok(table)
}
