import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode$;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource$;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * Reads the columns of a scan within the code that Spark generates for a query, as its reader of Parquet does.
 *
 * The scan below it plans the read and keeps the metrics. It also gives the rows where Spark does not generate code.
 */
public final class ArrowRows extends SparkPlan implements CodegenSupport {
    private final SparkPlan child;
    private final String source;
    private CodegenSupport above;

    /** `source`: the text of ArrowBatches.java. */
    public ArrowRows(SparkPlan child, String source) {
        this.child = child;
        this.source = source;
    }

    /** Whether ArrowBatches.java knows all types of these columns. */
    public static boolean canRead(Seq columns) {
        boolean found = true;
        for (Iterator each = columns.iterator(); found && each.hasNext();) {
            found = isKnown(((AttributeReference) each.next()).dataType());
        }
        return found;
    }

    private static boolean isKnown(DataType type) {
        if (type instanceof MapType) {
            return ((MapType) type).keyType() instanceof StringType && ((MapType) type).valueType() instanceof StringType;
        }
        return type instanceof ArrayType ? ((ArrayType) type).elementType() instanceof StringType
            : type instanceof StringType || type instanceof BinaryType || type instanceof IntegerType
                || type instanceof LongType || type instanceof TimestampType;
    }

    /** Spark may have put something between, or made another one in its place, whose metrics are those that count. */
    private BatchScanExec scan() {
        SparkPlan found = child;
        while (!(found instanceof BatchScanExec)) {
            found = (SparkPlan) found.children().head();
        }
        return (BatchScanExec) found;
    }

    public String doProduce(CodegenContext context) {
        String type = context.freshName("ArrowBatches"), batches = state(context, type), row = context.freshName("row");
        context.addInnerClass(source.replace("ArrowBatches", type));
        List columns = new ArrayList();
        for (int index = 0; index < output().length(); index++) {
            columns.add(column(context, (AttributeReference) output().apply(index), batches + ".columns[" + index + "]", row));
        }
        return "if (" + batches + " == null) " + batches + " = new " + type + "(" + arguments(context) + ");\n"
            + "while (" + limitNotReachedCond() + batches + ".next()) {\n"
            + "  int " + row + " = " + batches + ".row;\n"
            + consume(context, asSeq(columns), null)
            + "  if (shouldStop()) return;\n"
            + "}\n";
    }

    private static String state(CodegenContext context, String type) {
        return context.addMutableState(type, "batches", context.addMutableState$default$3(), true, true);
    }

    private static ExprCode column(CodegenContext context, AttributeReference column, String vector, String row) {
        String value = context.freshName("value"), empty = context.freshName("isNull");
        String java = CodeGenerator$.MODULE$.javaType(column.dataType());
        String read = CodeGenerator$.MODULE$.getValueFromVector(vector, column.dataType(), row);
        String nothing = CodeGenerator$.MODULE$.defaultValue(column.dataType(), false);
        String code = "boolean " + empty + " = " + vector + ".isNullAt(" + row + ");\n"
            + java + " " + value + " = " + empty + " ? " + nothing + " : " + read + ";\n";
        return new ExprCode(
            new CodeBlock(asSeq(Collections.singletonList(code)), asSeq(new ArrayList())),
            JavaCode$.MODULE$.isNullVariable(empty), JavaCode$.MODULE$.variable(value, column.dataType()));
    }

    /** What ArrowBatches.java needs to run the Python of a task, as Spark itself would run it. */
    private String arguments(CodegenContext context) {
        BatchScanExec scan = scan();
        PythonPartitionReaderFactory reader = (PythonPartitionReaderFactory) scan.readerFactory();
        Option artifacts = (Option) field(reader, "jobArtifactUUID"), session = (Option) field(reader, "sessionUUID");
        StructType read = UserDefinedPythonDataSource$.MODULE$.readInputSchema(), schema = scan.scan().readSchema();
        MapInBatchEvaluatorFactory run = ((UserDefinedPythonDataSource) field(reader, "source")).createMapInBatchEvaluatorFactory(
            (byte[]) field(reader, "pickledReadFunc"), "read_from_data_source", read, schema, scan.metrics(), artifacts, session);
        StructType given = new StructType(new StructField[] {new StructField("struct", read, true, Metadata.empty())});
        Object[] settings = {
            field(run, "sessionLocalTimeZone"), field(run, "largeVarTypes"), field(run, "pythonRunnerConf"), scan.metrics(),
            artifacts, session};
        return "inputs[0]"
            + ", " + context.addReferenceObj("functions", field(run, "chainedFunc"), "scala.collection.immutable.Seq")
            + ", " + field(run, "pythonEvalType")
            + ", " + context.addReferenceObj("given", given, StructType.class.getName())
            + ", " + context.addReferenceObj("schema", schema, StructType.class.getName())
            + ", " + context.addReferenceObj("settings", settings, "Object[]");
    }

    /** Spark's compiler made these private fields public under long names. */
    private static Object field(Object of, String name) {
        try {
            return of.getClass().getField(of.getClass().getName().replace('.', '$') + "$$" + name).get(of);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** One row for each task: the bytes that tell its Python what to read. */
    public Seq inputRDDs() {
        List parts = new ArrayList();
        for (Iterator each = scan().inputPartitions().iterator(); each.hasNext();) {
            parts.add(new GenericInternalRow(new Object[] {((PythonInputPartition) each.next()).pickedPartition()}));
        }
        RDD rows = sparkContext().parallelize(asSeq(parts), Math.max(parts.size(), 1), ClassTag$.MODULE$.apply(InternalRow.class));
        return asSeq(Collections.singletonList(rows));
    }

    public boolean canCheckLimitNotReached() {
        return true;
    }

    /** Some operators send what is below them to the executors, where this class is not. */
    public Object writeReplace() {
        return child;
    }

    public RDD doExecute() {
        return child.execute();
    }

    public Seq output() {
        return child.output();
    }

    public Seq children() {
        return asSeq(Collections.singletonList(child));
    }

    public SparkPlan withNewChildrenInternal(IndexedSeq children) {
        return new ArrowRows((SparkPlan) children.head(), source);
    }

    public Seq otherCopyArgs() {
        return asSeq(Collections.singletonList(source));
    }

    public CodegenSupport parent() {
        return above;
    }

    public void parent_$eq(CodegenSupport parent) {
        above = parent;
    }

    public int productArity() {
        return 1;
    }

    public Object productElement(int index) {
        return child;
    }

    public boolean canEqual(Object other) {
        return other instanceof ArrowRows;
    }

    private static Seq asSeq(List list) {
        return CollectionConverters.asScala(list).toSeq();
    }
}
