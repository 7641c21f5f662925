import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plans each read of the format "rmq": asks for the columns that the query uses, and gives the reader the query's filters.
 *
 * Spark 4.3 asks a source written in Python for all columns, and keeps the filters of a read for all other reads of the same
 * frame. Here every read is planned by itself. Spark applies the filters once more. A count of all rows gets sums, not rows.
 */
public final class Reads extends SparkStrategy {
    private static final String PLANNED = "rmq.planned", COUNTED = "rmq.counted";
    private String batches;

    /** The text of ArrowBatches.java. */
    public void setBatches(String batches) {
        this.batches = batches;
    }

    public Seq apply(LogicalPlan plan) {
        boolean counts = plan instanceof Aggregate && onlyCounts((Aggregate) plan);
        Option matched = PhysicalOperation$.MODULE$.unapply(counts ? ((Aggregate) plan).child() : plan);
        if (matched.isEmpty()) {
            return (Seq) Nil$.MODULE$;
        }
        Tuple3 operation = (Tuple3) matched.get();
        if (!(operation._3() instanceof DataSourceV2ScanRelation)) {
            return (Seq) Nil$.MODULE$;
        }
        DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) operation._3();
        Table table = relation.relation().table();
        if (!(table instanceof PythonTable) || !table.name().equalsIgnoreCase("rmq")) {
            return (Seq) Nil$.MODULE$;
        }
        if (counts) {
            return ((Seq) operation._2()).isEmpty() ? counted((Aggregate) plan, relation) : (Seq) Nil$.MODULE$;
        }
        return isCounted(relation) ? physical(plan) : planned((Seq) operation._1(), (Seq) operation._2(), relation);
    }

    private static boolean onlyCounts(Aggregate plan) {
        boolean found = plan.groupingExpressions().isEmpty() && !plan.aggregateExpressions().isEmpty();
        for (Iterator each = plan.aggregateExpressions().iterator(); found && each.hasNext();) {
            Object one = each.next();
            found = one instanceof Alias && countsRows(((Alias) one).child());
        }
        return found;
    }

    /** count(*) or count(1). */
    private static boolean countsRows(Expression expression) {
        if (!(expression instanceof AggregateExpression)) {
            return false;
        }
        AggregateExpression one = (AggregateExpression) expression;
        boolean found = one.aggregateFunction() instanceof Count && !one.isDistinct() && one.filter().isEmpty();
        for (Iterator each = ((Expression) one.aggregateFunction()).children().iterator(); found && each.hasNext();) {
            Object counted = each.next();
            found = counted instanceof Literal && ((Literal) counted).value() != null;
        }
        return found;
    }

    /** The sum of what each task has counted in Python, instead of a row for each message. */
    private Seq counted(Aggregate plan, DataSourceV2ScanRelation relation) {
        List counted = new ArrayList();
        choose(AttributeSet$.MODULE$.empty(), relation, counted, new ArrayList());
        MetadataBuilder marks = new MetadataBuilder().withMetadata(((StructField) counted.get(0)).metadata());
        marks.putString(COUNTED, schema(counted).json());
        StructField field = new StructField("messages", DataTypes.LongType, false, marks.build());
        AttributeReference messages = DataTypeUtils.toAttribute(field);
        List sums = new ArrayList();
        for (Iterator each = plan.aggregateExpressions().iterator(); each.hasNext();) {
            List values = new ArrayList(); // a sum of nothing is null
            values.add(new Sum(messages).toAggregateExpression());
            values.add(Literal.create(Long.valueOf(0L), DataTypes.LongType));
            sums.add(((Alias) each.next()).withNewChild(new Coalesce(asSeq(values))));
        }
        LogicalPlan read = reading(relation, Collections.singletonList(field), Collections.singletonList(messages), new Filter[0]);
        return asSeq(Collections.singletonList(planLater(plan.copy(plan.groupingExpressions(), asSeq(sums), read, plan.hint()))));
    }

    private static boolean isCounted(DataSourceV2ScanRelation relation) {
        Seq output = relation.output();
        return output.length() == 1 && ((AttributeReference) output.head()).metadata().contains(COUNTED);
    }

    private Seq planned(Seq projections, Seq conditions, DataSourceV2ScanRelation relation) {
        Filter[] filters = filters(conditions, relation.output());
        List fields = new ArrayList();
        List attributes = new ArrayList();
        choose(used(projections).$plus$plus(used(conditions)), relation, fields, attributes);
        LogicalPlan below = reading(relation, fields, attributes, filters);
        for (Iterator each = conditions.iterator(); each.hasNext();) {
            below = new org.apache.spark.sql.catalyst.plans.logical.Filter((Expression) each.next(), below);
        }
        return reading(physical(new Project(projections, below)));
    }

    private static LogicalPlan reading(DataSourceV2ScanRelation relation, List fields, List attributes, Filter[] filters) {
        OneRead source = new OneRead(relation, filters);
        PythonScan scan = new PythonScan(source, source.name, schema(fields), relation.relation().options(), filters);
        return new DataSourceV2ScanRelation(
            relation.relation(), scan, asSeq(attributes), relation.keyGroupedPartitioning(), relation.ordering(),
            relation.pushedFilters(), relation.mergeableScan());
    }

    /** Spark copies each row of a source into a row of its own kind; those of a source in Python are of that kind already. */
    private static Seq physical(LogicalPlan plan) {
        List found = new ArrayList();
        for (Iterator each = new DataSourceV2Strategy(SparkSession$.MODULE$.active()).apply(plan).iterator(); each.hasNext();) {
            SparkPlan one = (SparkPlan) each.next();
            found.add(one instanceof ProjectExec && onlyCopies((ProjectExec) one) ? ((ProjectExec) one).child() : one);
        }
        return asSeq(found);
    }

    /** These plans, whose scans hand columns over. */
    private Seq reading(Seq plans) {
        List found = new ArrayList();
        for (Iterator each = plans.iterator(); each.hasNext();) {
            SparkPlan one = (SparkPlan) each.next();
            boolean scans = one instanceof BatchScanExec && ArrowRows.canRead(one.output());
            found.add(scans ? new ArrowRows(one, batches) : one.withNewChildren(reading(one.children())));
        }
        return asSeq(found);
    }

    private static boolean onlyCopies(ProjectExec project) {
        Seq wanted = project.projectList(), read = project.child().output();
        boolean same = project.child() instanceof BatchScanExec && wanted.length() == read.length();
        for (int index = 0; same && index < read.length(); index++) {
            same = ((NamedExpression) wanted.apply(index)).exprId().equals(((NamedExpression) read.apply(index)).exprId());
        }
        return same;
    }

    private static Filter[] filters(Seq conditions, Seq output) {
        List found = new ArrayList();
        for (Iterator each = DataSourceStrategy$.MODULE$.normalizeExprs(conditions, output).iterator(); each.hasNext();) {
            Option filter = DataSourceStrategy$.MODULE$.translateFilter((Expression) each.next(), false);
            if (filter.isDefined()) {
                found.add(filter.get());
            }
        }
        return (Filter[]) found.toArray(new Filter[0]);
    }

    private static AttributeSet used(Seq expressions) {
        AttributeSet found = AttributeSet$.MODULE$.empty();
        for (Iterator each = expressions.iterator(); each.hasNext();) {
            found = found.$plus$plus(((Expression) each.next()).references());
        }
        return found;
    }

    /** The used columns; a number if none is used, since rows must have one to be counted. */
    private static void choose(AttributeSet used, DataSourceV2ScanRelation relation, List fields, List attributes) {
        StructField[] every = relation.scan().readSchema().fields();
        int cheapest = 0;
        for (int index = 0; index < every.length; index++) {
            AttributeReference attribute = (AttributeReference) relation.output().apply(index);
            if (used.contains(attribute)) {
                fields.add(every[index]);
                attributes.add(attribute);
            }
            if (every[index].dataType() instanceof IntegerType && !(every[cheapest].dataType() instanceof IntegerType)) {
                cheapest = index;
            }
        }
        if (fields.isEmpty()) {
            fields.add(every[cheapest]);
            attributes.add(relation.output().apply(cheapest));
        }
        StructField first = (StructField) fields.get(0); // in Python it tells a table's options, and whose the filters are
        MetadataBuilder marks = new MetadataBuilder().withMetadata(first.metadata()).withMetadata(every[0].metadata());
        marks.putBoolean(PLANNED, true);
        fields.set(0, new StructField(first.name(), first.dataType(), first.nullable(), marks.build()));
    }

    private static StructType schema(List fields) {
        return new StructType((StructField[]) fields.toArray(new StructField[0]));
    }

    private static Seq asSeq(List list) {
        return CollectionConverters.asScala(list).toSeq();
    }

    /** The source of one read: its filters are of no other one. In Python it is the one that the table has already. */
    public static final class OneRead extends PythonDataSourceV2 {
        final String name;
        private final DataSourceV2ScanRelation relation;
        private final Filter[] filters;
        private PythonDataSourceReadInfo planned;

        public OneRead(DataSourceV2ScanRelation relation, Filter[] filters) {
            this.name = relation.relation().table().name();
            this.relation = relation;
            this.filters = filters;
            setShortName(name);
        }

        public PythonDataSourceReadInfo getOrCreateReadInfo(
                String name, CaseInsensitiveStringMap options, StructType schema, boolean isStreaming) {
            if (planned == null) {
                Option whole = Option.apply(relation.scan().readSchema());
                PythonDataSourceCreationResult made = ofTable().getOrCreateDataSourceInPython(name, options, whole);
                Option pushed = filters.length > 0 ? source().pushdownFiltersInPython(made, schema, filters) : Option.empty();
                planned = pushed.isDefined()
                    ? ((PythonFilterPushdownResult) pushed.get()).readInfo()
                    : source().createReadInfoInPython(made, schema, false);
            }
            return planned;
        }

        private PythonDataSourceV2 ofTable() {
            try {
                Field source = PythonTable.class.getDeclaredField("ds");
                source.setAccessible(true);
                return (PythonDataSourceV2) source.get(relation.relation().table());
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
