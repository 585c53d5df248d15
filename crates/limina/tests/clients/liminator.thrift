// Liminator's interface, as its clients know it. The functions give their arguments no ids, as there.

typedef string LimitId
typedef string LimitName
typedef string OperationId
typedef map<string, string> Context
typedef i64 Value

exception LimitNotFound {}
exception OperationNotFound {}
exception OperationAlreadyInFinalState {}
exception DuplicateOperation {}
exception DuplicateLimitName {}
exception LimitsValuesReadingException {}

struct LimitChange {
    1: optional LimitId limit_id
    2: required LimitName limit_name
    3: required Value value
    4: optional Context context
}

struct LimitRequest {
    1: required OperationId operation_id
    2: required list<LimitChange> limit_changes
}

struct LimitResponse {
    1: optional LimitId limit_id
    2: required LimitName limit_name
    3: required Value commit_value
    4: required Value total_value
}

service LiminatorService {
    list<LimitResponse> Hold(LimitRequest request)
        throws (1: LimitNotFound ex1, 2: DuplicateOperation ex2, 3: OperationAlreadyInFinalState ex3)
    void Commit(LimitRequest request) throws (1: LimitNotFound ex1, 2: OperationNotFound ex2)
    void Rollback(LimitRequest request) throws (1: LimitNotFound ex1, 2: OperationNotFound ex2)
    list<LimitResponse> Get(LimitRequest request)
        throws (1: LimitNotFound ex1, 2: LimitsValuesReadingException ex2)
    list<LimitResponse> GetLastLimitsValues(list<LimitName> limit_names)
        throws (1: LimitNotFound ex1, 2: LimitsValuesReadingException ex2)
}
