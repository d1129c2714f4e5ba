"""Programs that exist already, posting responses to rose-nano: OpenAI's client, the Agents SDK."""

import asyncio
import json
from typing import Literal

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from pydantic import BaseModel

MODEL = "rose-nano"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city."}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
FORM = "Ann is 34 years old and happy. Fill the form."


class Person(BaseModel):
    """What the model is to fill in."""

    name: str
    age: int
    mood: Literal["happy", "sad"]


def test_a_response_streams(nano):
    with nano.responses.stream(model=MODEL, input="What is 12 + 30?", temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    told = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    thought = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    assert told == final.output_text
    assert "42" in told
    assert thought == final.output[0].content[0].text
    assert final.usage.output_tokens_details.reasoning_tokens > 0
    more = nano.responses.create(
        model=MODEL, input="Now add 4 to that.", previous_response_id=final.id, temperature=0
    )
    assert "46" in more.output_text
    assert more.usage.input_tokens_details.cached_tokens > 0


def test_a_loop_of_three_calls_over_previous_responses(nano):
    """Each city is asked for, called for, answered, and told."""
    previous: str | None = None
    for city, state in {"Paris": "sunny", "Rome": "rainy", "Oslo": "cloudy"}.items():
        response = ask(nano, f"What is the weather in {city}?", previous)
        [call] = [item for item in response.output if item.type == "function_call"]
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": city})
        output = json.dumps({"weather": state})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
        answer = ask(nano, [result], response.id)
        assert state in answer.output_text
        previous = answer.id


def ask(nano: openai.OpenAI, posted: object, previous: str | None):
    return nano.responses.create(
        model=MODEL, input=posted, previous_response_id=previous, tools=[WEATHER], temperature=0
    )


def test_structured_output_is_parsed_into_a_pydantic_model(nano):
    response = nano.responses.parse(model=MODEL, input=FORM, text_format=Person, temperature=0)
    assert isinstance(response.output_parsed, Person)
    with nano.responses.stream(
        model=MODEL, input=FORM, text_format=Person, temperature=0
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.output_text.delta" in kinds
    assert final.output_parsed == response.output_parsed


def test_a_required_call_is_made_though_none_is_needed(nano):
    response = nano.responses.create(
        model=MODEL, input="Hello!", tools=[WEATHER], tool_choice="required", temperature=0
    )
    [call] = [item for item in response.output if item.type == "function_call"]
    assert isinstance(json.loads(call.arguments)["city"], str)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_agents_sdk_runs_a_function_tool(nano_url, streamed):
    asked: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """Current weather of a city."""
        asked.append(city)
        return '{"weather": "sunny"}'

    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=nano_url, api_key="none") as client:
            agent = Agent(
                name="nano",
                instructions="Answer in plain English.",
                model=OpenAIResponsesModel(model=MODEL, openai_client=client),
                model_settings=ModelSettings(temperature=0),
                tools=[get_weather],
            )
            config = RunConfig(tracing_disabled=True)
            question = "What is the weather in Paris?"
            if not streamed:
                return (await Runner.run(agent, question, run_config=config)).final_output
            result = Runner.run_streamed(agent, question, run_config=config)
            kinds = [event.name async for event in result.stream_events() if named(event)]
            assert "tool_called" in kinds
            assert kinds[-1] == "message_output_created"
            return result.final_output

    answer = asyncio.run(run())
    assert asked == ["Paris"]
    assert "sunny" in answer


def named(event: object) -> bool:
    return getattr(event, "type", "") == "run_item_stream_event"
