import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What RocketMQ's own evaluator makes of SQL92 expressions. Reads {"messages": [properties, ...], "results": {expression: ...}}
 * and writes it back with a letter for each message: T true, F false, N null, E exception, O something else; or "refused".
 */
public class SqlOracle {
    public static void main(String[] args) throws Exception {
        Path file = Paths.get(args[0]);
        JSONObject cases = JSON.parseObject(new String(Files.readAllBytes(file), StandardCharsets.UTF_8));
        JSONArray messages = cases.getJSONArray("messages");
        JSONObject results = cases.getJSONObject("results");
        for (String sql : results.keySet()) {
            results.put(sql, resultOf(sql, messages));
        }
        StringBuilder text = new StringBuilder("{\n\"messages\": [\n");
        append(text, messages.stream().map(JSON::toJSONString).toArray(String[]::new));
        text.append("],\n\"results\": {\n");
        append(text, results.entrySet().stream()
            .map(each -> JSON.toJSONString(each.getKey()) + ": \"" + each.getValue() + "\"").toArray(String[]::new));
        Files.write(file, text.append("}\n}\n").toString().getBytes(StandardCharsets.UTF_8));
    }

    private static void append(StringBuilder text, String[] lines) {
        text.append(String.join(",\n", lines)).append("\n");
    }

    private static String resultOf(String sql, JSONArray messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(sql);
        } catch (MQFilterException refused) {
            return "refused";
        }
        StringBuilder found = new StringBuilder();
        for (int i = 0; i < messages.size(); i++) {
            Map<String, String> properties = new HashMap<>();
            messages.getJSONObject(i).forEach((name, value) -> properties.put(name, (String) value));
            found.append(letter(expression, properties));
        }
        return found.toString();
    }

    private static char letter(Expression expression, Map<String, String> properties) {
        try {
            Object result = expression.evaluate(new MessageEvaluationContext(properties));
            return result == null ? 'N' : result instanceof Boolean ? ((Boolean) result ? 'T' : 'F') : 'O';
        } catch (Exception wrong) {
            return 'E';
        }
    }
}
