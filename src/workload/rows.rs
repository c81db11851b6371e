//! The lines of a trace, counted, and what happens to the bad ones.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::error::{RowError, RowProblem, WorkloadError};

/// Reads a trace line by line and keeps the rows that a parser rejects.
pub(super) struct Rows<R> {
    file: PathBuf,
    reader: R,
    line: u64,
    bytes: Vec<u8>,
    skip_bad: bool,
    skipped: Vec<RowError>,
}

impl<R: BufRead> Rows<R> {
    pub(super) fn new(file: &Path, reader: R, skip_bad: bool) -> Self {
        Rows {
            file: file.to_owned(),
            reader,
            line: 0,
            bytes: Vec::new(),
            skip_bad,
            skipped: Vec::new(),
        }
    }

    /// The next line that is not blank, with its number.
    pub(super) fn next_row(&mut self) -> Result<Option<(u64, String)>, WorkloadError> {
        loop {
            self.line += 1;
            self.bytes.clear();
            let read = self.reader.read_until(b'\n', &mut self.bytes);
            let length = read.map_err(|source| WorkloadError::Read {
                file: self.file.clone(),
                line: self.line,
                source,
            })?;
            if length == 0 {
                return Ok(None);
            }
            match str::from_utf8(&self.bytes).map(trim) {
                Ok("") => {}
                Ok(text) => return Ok(Some((self.line, text.to_owned()))),
                Err(_) => self.reject(self.line, RowProblem::NotText)?,
            }
        }
    }

    /// Sets a bad row aside, or ends the reading.
    pub(super) fn reject(&mut self, line: u64, problem: RowProblem) -> Result<(), WorkloadError> {
        let file = self.file.clone();
        let error = RowError { file, line, problem };
        if !self.skip_bad {
            return Err(error.into());
        }
        self.skipped.push(error);
        Ok(())
    }

    pub(super) fn into_skipped(self) -> Vec<RowError> {
        self.skipped
    }
}

/// `text` without the white space around it and without a byte-order mark.
pub(super) fn trim(text: &str) -> &str {
    text.trim_start_matches('\u{feff}').trim()
}
