/**
 * The rows of one task, as its Python gives them: whole columns at a time, whose values are read at their addresses.
 *
 * Spark's own reader of Arrow asks for each value whether it is null, and checks where it is, again and again. No class of ours
 * is at the executors: ArrowRows.java puts this text into the code that Spark generates for a query, so it imports nothing. The
 * addresses are those of the batch that was loaded last; the vectors own the memory, and the task's end frees it.
 */
final class ArrowBatches {
    Cells[] columns;
    int row = -1;
    private int rows;
    private final scala.collection.Iterator batches;
    private final org.apache.spark.sql.types.StructType schema;
    private final org.apache.spark.sql.execution.metric.SQLMetric rowsRead;
    private final org.apache.spark.TaskContext task = org.apache.spark.TaskContext.get();

    ArrowBatches(
            scala.collection.Iterator parts, scala.collection.immutable.Seq functions, int kind,
            org.apache.spark.sql.types.StructType given, org.apache.spark.sql.types.StructType schema, Object[] settings) {
        scala.collection.immutable.Map shown = (scala.collection.immutable.Map) settings[3];
        Object counted = org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric$.MODULE$.pythonMetrics();
        Object wrapped = new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(new Object[] {parts.next()});
        Object input = scala.collection.Iterator$.MODULE$.single(wrapped);
        this.batches = new org.apache.spark.sql.execution.python.ArrowPythonRunner(
            functions, kind, new int[][] {new int[] {0}}, given, (String) settings[0], ((Boolean) settings[1]).booleanValue(),
            (scala.collection.immutable.Map) settings[2],
            (scala.collection.immutable.Map) ((scala.collection.immutable.Map) counted).$plus$plus(shown),
            (scala.Option) settings[4], (scala.Option) settings[5])
            .compute(scala.collection.Iterator$.MODULE$.single(input), task.partitionId(), task);
        this.schema = schema;
        this.rowsRead = (org.apache.spark.sql.execution.metric.SQLMetric) shown.apply("numOutputRows");
    }

    /** Whether there is one more row: `row` of `columns`. Throws what Python threw. */
    boolean next() {
        task.killTaskIfInterrupted(); // for each row: what is done with one may take long, and a batch has thousands
        row++;
        while (row >= rows) {
            if (!batches.hasNext()) {
                return false;
            }
            load((org.apache.spark.sql.vectorized.ColumnarBatch) batches.next());
        }
        return true;
    }

    private void load(org.apache.spark.sql.vectorized.ColumnarBatch batch) {
        org.apache.spark.sql.vectorized.ArrowColumnVector whole = (org.apache.spark.sql.vectorized.ArrowColumnVector) batch.column(0);
        if (columns == null && !org.apache.spark.sql.types.DataType$.MODULE$.equalsIgnoreCompatibleNullability(whole.dataType(), schema)) {
            throw new IllegalStateException("Python gave " + whole.dataType().sql() + ", not " + schema.sql());
        }
        columns = new Cells[schema.length()];
        for (int index = 0; index < columns.length; index++) {
            columns[index] = new Cells((org.apache.arrow.vector.FieldVector) whole.getChild(index).getValueVector());
        }
        row = 0;
        rows = batch.numRows();
        rowsRead.add(rows);
        task.taskMetrics().inputMetrics().incRecordsRead(rows);
    }

    /** One column: numbers, texts, bytes; lists and maps of texts. */
    final class Cells extends org.apache.spark.sql.vectorized.ColumnVector {
        private final int nulls;
        private final long valid;
        private long edges;
        private long values;
        private Cells first;
        private Cells second;

        Cells(org.apache.arrow.vector.FieldVector vector) {
            super(org.apache.spark.sql.util.ArrowUtils.fromArrowField(vector.getField()));
            nulls = vector.getNullCount();
            valid = vector.getValidityBufferAddress();
            if (vector instanceof org.apache.arrow.vector.BaseFixedWidthVector) {
                values = vector.getDataBufferAddress();
                return;
            }
            edges = vector.getOffsetBufferAddress();
            if (vector instanceof org.apache.arrow.vector.BaseVariableWidthVector) {
                values = vector.getDataBufferAddress();
                return;
            }
            org.apache.arrow.vector.FieldVector below =
                (org.apache.arrow.vector.FieldVector) ((org.apache.arrow.vector.complex.ListVector) vector).getDataVector();
            if (vector instanceof org.apache.arrow.vector.complex.MapVector) {
                first = new Cells((org.apache.arrow.vector.FieldVector) below.getChildrenFromFields().get(0));
                second = new Cells((org.apache.arrow.vector.FieldVector) below.getChildrenFromFields().get(1));
            } else {
                first = new Cells(below);
            }
        }

        public boolean hasNull() {
            return nulls > 0;
        }

        public int numNulls() {
            return nulls;
        }

        public boolean isNullAt(int at) {
            return nulls > 0 && (Platform.getByte(null, valid + (at >> 3)) >> (at & 7) & 1) == 0;
        }

        public int getInt(int at) {
            return Platform.getInt(null, values + 4L * at);
        }

        public long getLong(int at) {
            return Platform.getLong(null, values + 8L * at);
        }

        private int edge(int at) {
            return Platform.getInt(null, edges + 4L * at);
        }

        public UTF8String getUTF8String(int at) {
            return isNullAt(at) ? null : UTF8String.fromAddress(null, values + edge(at), edge(at + 1) - edge(at));
        }

        public byte[] getBinary(int at) {
            if (isNullAt(at)) {
                return null;
            }
            byte[] found = new byte[edge(at + 1) - edge(at)];
            Platform.copyMemory(null, values + edge(at), found, Platform.BYTE_ARRAY_OFFSET, found.length);
            return found;
        }

        public org.apache.spark.sql.vectorized.ColumnarArray getArray(int at) {
            return isNullAt(at) ? null : new org.apache.spark.sql.vectorized.ColumnarArray(first, edge(at), edge(at + 1) - edge(at));
        }

        public org.apache.spark.sql.vectorized.ColumnarMap getMap(int at) {
            return isNullAt(at)
                ? null : new org.apache.spark.sql.vectorized.ColumnarMap(first, second, edge(at), edge(at + 1) - edge(at));
        }

        public void close() {} // the runner's

        public boolean getBoolean(int at) {
            throw new UnsupportedOperationException();
        }

        public byte getByte(int at) {
            throw new UnsupportedOperationException();
        }

        public short getShort(int at) {
            throw new UnsupportedOperationException();
        }

        public float getFloat(int at) {
            throw new UnsupportedOperationException();
        }

        public double getDouble(int at) {
            throw new UnsupportedOperationException();
        }

        public Decimal getDecimal(int at, int precision, int scale) {
            throw new UnsupportedOperationException();
        }

        public org.apache.spark.sql.vectorized.ColumnVector getChild(int ordinal) {
            throw new UnsupportedOperationException();
        }
    }
}
