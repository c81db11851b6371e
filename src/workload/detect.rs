//! Tells the format of a trace by its first lines.

use std::io::{BufRead, Cursor, Read};
use std::path::Path;

use serde_json::{Map, Value};

use super::azure;
use super::error::{WorkloadError, shorten};
use super::rows::trim;

/// The formats of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Mooncake,
    Sessions,
    Azure,
}

/// The format, and a reader that gives the whole trace again. The first line must be a JSON object,
/// perhaps a broken one, or the CSV header; the first JSON object that is whole tells whether rows
/// belong to sessions.
pub(super) fn detect<R: BufRead>(
    file: &Path,
    mut reader: R,
) -> Result<(Format, impl BufRead + use<R>), WorkloadError> {
    let mut seen = Vec::new();
    let mut line = 0;
    let mut format = None;
    while format.is_none() {
        line += 1;
        let start = seen.len();
        let read = reader.read_until(b'\n', &mut seen);
        let length =
            read.map_err(|source| WorkloadError::Read { file: file.to_owned(), line, source })?;
        if length == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&seen[start..]);
        let text = trim(&text);
        if text.is_empty() {
            continue;
        }
        let first = seen[..start].iter().all(u8::is_ascii_whitespace);
        format = match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(row) if row.contains_key("session_id") => Some(Format::Sessions),
            Ok(_) => Some(Format::Mooncake),
            Err(_) if first && azure::is_header(text) => Some(Format::Azure),
            Err(_) if first && !text.starts_with('{') => {
                return Err(WorkloadError::UnknownFormat {
                    file: file.to_owned(),
                    line,
                    found: format!("{:?}", shorten(text)),
                });
            }
            Err(_) => None,
        };
    }
    // Without one whole object every row is bad, whichever JSON format it was meant to be.
    let format = format.unwrap_or(Format::Mooncake);
    Ok((format, Cursor::new(seen).chain(reader)))
}
