//! What a power cut may have taken: the saves whose files were not on the disk yet, though their rows were.

use std::path::Path;

use super::{RecoveryCopy, RecoveryMeta, Result, Workspace};
use crate::catalog::UnsyncedSave;
use crate::model::{CheckoutId, Holder};

impl Workspace {
    /// Gives drafts back what they were before saves that a power cut may have damaged; what is left of those becomes
    /// recovery copies. Does nothing about saves of a mount that lives, or that died with nothing else.
    pub(super) fn take_back_lost_saves(
        &self,
        checkout: CheckoutId,
        holder: &Holder,
    ) -> Result<Vec<RecoveryCopy>> {
        let mut copies = Vec::new();
        for save in self.in_catalog(self.catalog().unsynced_saves(checkout, self.now()))? {
            let file = self.layout().staging().join(&save.file);
            if !save.lost && file.exists() {
                continue;
            }
            // A crash after this finds no file, and takes the save back all the same.
            copies.extend(self.keep_remains(&save, &file, checkout, holder)?);
            if self.in_catalog(self.catalog().fall_back(checkout, &save))? {
                let detail = format!("a power cut came before the save {} was on the disk", save.file);
                self.report_lost(save.artifact, holder, &detail)?;
            }
        }
        Ok(copies)
    }

    fn keep_remains(
        &self,
        save: &UnsyncedSave,
        file: &Path,
        checkout: CheckoutId,
        holder: &Holder,
    ) -> Result<Option<RecoveryCopy>> {
        if !file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            return Ok(None);
        }
        let meta = RecoveryMeta {
            artifact: self.in_catalog(self.catalog().artifact_id(save.artifact))?,
            path: self.in_catalog(self.catalog().any_path_of(checkout, save.artifact))?,
            base: save.base,
            holder: holder.clone(),
            reason: "saved just before a power cut: it may be incomplete".to_owned(),
        };
        self.put_aside(file, &meta).map(Some)
    }
}
