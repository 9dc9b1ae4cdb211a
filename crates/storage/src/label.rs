//! Small text files that say what a directory is: the last line is a checksum over the others, and they change as a whole
//! or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const CHECKSUM: &str = "checksum ";

/// Puts `text`, whole lines, into the file `path` and makes it durable.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    assert!(text.ends_with('\n'), "a label is made of whole lines");
    let temporary = path.with_added_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(format!("{text}{CHECKSUM}{:08x}\n", crc32fast::hash(text.as_bytes())).as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The text before the checksum, if that is right.
pub fn unseal(sealed: &str) -> Option<&str> {
    let at = sealed.rfind(CHECKSUM)?;
    let (text, checksum) = sealed.split_at(at);
    (checksum == format!("{CHECKSUM}{:08x}\n", crc32fast::hash(text.as_bytes()))).then_some(text)
}

/// What stands behind `name` and a space in one of the lines.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written_and_no_flipped_or_missing_bit_goes_unnoticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LABEL");
        write(&path, "format 3\nid 17\n").unwrap();
        let sealed = fs::read_to_string(&path).unwrap();
        assert_eq!(sealed, "format 3\nid 17\nchecksum f4300ec5\n");
        assert_eq!(unseal(&sealed), Some("format 3\nid 17\n"));
        assert_eq!(field(&sealed, "id"), Some("17"));
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped = String::from_utf8_lossy(&bytes).into_owned();
            assert_eq!(unseal(&flipped), None, "bit {bit}: {flipped}");
        }
        for end in 0..sealed.len() {
            assert_eq!(unseal(&sealed[..end]), None, "cut at {end}");
        }
    }
}
