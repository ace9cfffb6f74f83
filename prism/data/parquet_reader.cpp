#include <fmt/format.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include "prism/data/format_reader.h"
#include "prism/io/error.h"

namespace prism::data {

namespace {

constexpr int64_t kColumnBufferBytes = int64_t{1} << 20;
constexpr int64_t kBatchRows = 64;

// Makes Arrow buffer only the pages in use, where the default would load the whole column of a row group, and check the
// checksums of pages that have one.
parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();
  properties.set_buffer_size(kColumnBufferBytes);
  properties.set_page_checksum_verification(true);
  return properties;
}

class ParquetReader : public FormatReader {
 public:
  ParquetReader(const std::filesystem::path& path, const ReaderOptions& options)
      : name_(path.string()), field_(options.text_field), document_(options.piece_bytes) {
    guarded([&] {
      file_bytes_ = std::filesystem::file_size(path);
      file_ = parquet::ParquetFileReader::OpenFile(name_, /*memory_map=*/false, reader_properties());
      metadata_ = file_->metadata();
    });
    column_ = find_column();
  }

  bool next(Piece& piece) override {
    while (!document_.next(piece)) {
      if (row_in_batch_ == batch_rows_ && !next_batch()) return false;
      hold_row();
    }
    return true;
  }

  uint64_t consumed() const override {
    const double rows = static_cast<double>(std::max<int64_t>(metadata_->num_rows(), 1));
    return static_cast<uint64_t>(static_cast<double>(file_bytes_) * std::min(1.0, static_cast<double>(row_) / rows));
  }

 private:
  // Arrow reports broken files with several kinds of exceptions.
  template <typename Body>
  void guarded(Body body) const {
    try {
      body();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(fmt::format("{} row {}: cannot read Parquet: {}", name_, row_ + 1, error.what()));
    }
  }

  int find_column() const {
    const parquet::SchemaDescriptor* schema = metadata_->schema();
    std::string known;
    for (int i = 0; i < schema->num_columns(); ++i) {
      const parquet::ColumnDescriptor* column = schema->Column(i);
      const std::string name = column->path()->ToDotString();
      if (name == field_) {
        check_kind(*column);
        return i;
      }
      known += (known.empty() ? "" : ", ") + name;
    }
    throw Error(fmt::format("{}: expected a column \"{}\", got the columns {}", name_, field_, known));
  }

  void check_kind(const parquet::ColumnDescriptor& column) const {
    if (column.physical_type() == parquet::Type::BYTE_ARRAY && column.max_repetition_level() == 0) return;
    throw Error(fmt::format("{}: expected strings in column \"{}\", got {}{}", name_, field_,
                            column.max_repetition_level() > 0 ? "lists of " : "",
                            parquet::TypeToString(column.physical_type())));
  }

  bool next_batch() {
    bool more = false;
    guarded([&] {
      while (!values_ || !values_->HasNext()) {
        if (row_group_ == metadata_->num_row_groups()) return;
        // The last group's values are freed before the next group's are read.
        values_.reset();
        group_ = file_->RowGroup(row_group_++);
        values_ = std::static_pointer_cast<parquet::ByteArrayReader>(group_->Column(column_));
      }
      int64_t values = 0;
      batch_rows_ = values_->ReadBatch(kBatchRows, levels_.data(), nullptr, batch_.data(), &values);
      row_in_batch_ = value_in_batch_ = 0;
      more = batch_rows_ > 0;
    });
    if (!more && row_ != metadata_->num_rows()) {
      throw Error(fmt::format("{}: expected {} rows, got {}; the file is damaged", name_, metadata_->num_rows(), row_));
    }
    return more;
  }

  void hold_row() {
    ++row_;
    const int16_t defined = metadata_->schema()->Column(column_)->max_definition_level();
    const bool is_null = defined > 0 && levels_[static_cast<size_t>(row_in_batch_)] < defined;
    ++row_in_batch_;
    if (is_null) {
      ++null_rows_;
      return;
    }
    const parquet::ByteArray& value = batch_[static_cast<size_t>(value_in_batch_++)];
    document_.hold(std::string(reinterpret_cast<const char*>(value.ptr), value.len));
  }

  std::string name_;
  std::string field_;
  HeldDocument document_;
  uint64_t file_bytes_ = 0;
  std::unique_ptr<parquet::ParquetFileReader> file_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  int column_ = 0;
  int row_group_ = 0;
  std::shared_ptr<parquet::RowGroupReader> group_;
  std::shared_ptr<parquet::ByteArrayReader> values_;
  std::array<parquet::ByteArray, kBatchRows> batch_;
  std::array<int16_t, kBatchRows> levels_{};
  int64_t batch_rows_ = 0;
  int64_t row_in_batch_ = 0;
  int64_t value_in_batch_ = 0;
  int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<FormatReader> read_parquet(const std::filesystem::path& path, const ReaderOptions& options) {
  return std::make_unique<ParquetReader>(path, options);
}

}  // namespace prism::data
