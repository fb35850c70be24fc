//! `steadfast info --export`: the identity of a volume, in the form of blkid(8) and of udev rules.
//!
//! udev runs this for every block device that appears, and for devices whose volume is mounted. So
//! the command reads only the superblock and takes no lock. Exit code 2 says that there is no
//! volume, as with blkid.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use steadfast::tools::Identity;

use crate::dead_mount;
use crate::failure::{Exit, Failure, Outcome};
use crate::live::Live;
use crate::output::Output;
use crate::report::uuid_text;
use crate::{host, window};

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// KEY=value, values escaped for a shell: TYPE, USAGE, VERSION, UUID, LABEL, BLOCK_SIZE, FSSIZE
    Blkid,
    /// ID_FS_KEY=value for IMPORT{program}, with \xHH in the keys that end in _ENC
    Udev,
}

/// Prints the lines that describe `path`.
///
/// # Errors
/// `Usage` (2) if there is no Steadfast volume, otherwise what is wrong with the target.
pub fn run(path: &Path, form: Form) -> Outcome {
    // A mount point stands for the image or device that is mounted there.
    let metadata = fs::metadata(window::split(path))
        .map_err(|error| dead_mount::stale_or_host(&error, path))?;
    let source = if metadata.is_dir() { Live::open(path)?.mount.source } else { path.to_owned() };
    let identity = host::identify(&source).map_err(|failure| match failure.exit {
        Exit::NotAVolume => Failure { exit: Exit::Usage, ..failure },
        _ => failure,
    })?;
    let mut output = Output::new();
    for (key, value) in lines(&source, &identity, form) {
        output.line(format_args!("{key}={value}"))?;
    }
    output.finish()
}

fn lines(source: &Path, identity: &Identity, form: Form) -> Vec<(&'static str, String)> {
    let uuid = uuid_text(&identity.uuid);
    let version = identity.version.to_string();
    let block_size = identity.block_size.to_string();
    let size = identity.size.to_string();
    let label = &identity.label;
    let mut lines = match form {
        Form::Blkid => vec![
            ("DEVNAME", shell(&source.to_string_lossy())),
            ("TYPE", "steadfast".into()),
            ("USAGE", "filesystem".into()),
            ("VERSION", version),
            ("UUID", uuid),
            ("BLOCK_SIZE", block_size),
            ("FSSIZE", size),
        ],
        Form::Udev => vec![
            ("ID_FS_TYPE", "steadfast".into()),
            ("ID_FS_USAGE", "filesystem".into()),
            ("ID_FS_VERSION", version),
            ("ID_FS_UUID", uuid.clone()),
            ("ID_FS_UUID_ENC", encoded(&uuid)),
            ("ID_FS_BLOCKSIZE", block_size),
            ("ID_FS_SIZE", size),
        ],
    };
    if !label.is_empty() {
        match form {
            Form::Blkid => lines.push(("LABEL", shell(label))),
            Form::Udev => {
                lines.push(("ID_FS_LABEL", safe(label)));
                lines.push(("ID_FS_LABEL_ENC", encoded(label)));
            }
        }
    }
    lines
}

/// Quotes a text so that a shell reads the same word; control characters become `?`.
fn shell(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            word.push('?');
            continue;
        }
        if character.is_ascii()
            && !character.is_ascii_alphanumeric()
            && !"-_./:,+@%".contains(character)
        {
            word.push('\\');
        }
        word.push(character);
    }
    word
}

/// Whether udev keeps this character unchanged.
fn is_safe(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || "#+-.:=@_".contains(character)
        || (!character.is_ascii() && !character.is_control() && !character.is_whitespace())
}

/// Text for a property that scripts use: unsafe characters become `_`, white space at the ends is
/// dropped.
fn safe(text: &str) -> String {
    text.trim().replace(|character| !is_safe(character), "_")
}

/// The whole text as in /dev/disk/by-label: unsafe characters become `\xHH`.
fn encoded(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for character in text.chars() {
        if is_safe(character) {
            name.push(character);
        } else {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                let _ = write!(name, "\\x{byte:02x}");
            }
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(label: &str) -> Identity {
        Identity {
            version: 1,
            uuid: [7; 16],
            label: label.into(),
            size: 1 << 20,
            block_size: 4096,
            blocks: 4096,
            created: steadfast::Timestamp::default(),
            group_blocks: 8192,
            inline_max: 2048,
            reserve_blocks: 64,
        }
    }

    #[test]
    fn labels_are_quoted_for_a_shell() {
        assert_eq!(shell("a b$(c)'\"\\\n"), "a\\ b\\$\\(c\\)\\'\\\"\\\\?");
        assert_eq!(shell("größer-1.2_x"), "größer-1.2_x");
    }

    #[test]
    fn labels_are_encoded_for_udev() {
        assert_eq!(encoded("my disk/ä"), "my\\x20disk\\x2fä");
        assert_eq!(safe(" my disk/ä "), "my_disk_ä");
        assert_eq!(encoded("\u{85}\\"), "\\xc2\\x85\\x5c");
    }

    #[test]
    fn a_volume_without_a_label_has_no_such_line() {
        for form in [Form::Blkid, Form::Udev] {
            let has_label = |label: &str| {
                let lines = lines(Path::new("/dev/x"), &identity(label), form);
                lines.iter().any(|(key, _)| key.ends_with("LABEL"))
            };
            assert!(has_label("x") && !has_label(""));
        }
    }
}
